"""`MaterialParser`: how a file becomes a document; `parser_for` chooses by name and first bytes.

Parsers are imported when they are asked for: the libraries behind them belong into the parser
process, and the server, which only asks what is supported, must not pay for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import Protocol

from server.app.materials.document import Document, ParseLimits
from server.app.materials.errors import MaterialError

Progress = Callable[[int, int], None]
"""Called now and then with pages (or slides) done, and all of them."""


@dataclass(frozen=True, slots=True)
class MaterialSource:
    """A file to be read. `encoding` is what somebody chose; None means: find it out."""

    name: str
    data: bytes
    encoding: str | None = None


class MaterialParser(Protocol):
    """Reads one format. Stateless."""

    @property
    def format(self) -> str:
        """The format's name, as it is stored."""
        ...

    def parse(self, source: MaterialSource, limits: ParseLimits, progress: Progress) -> Document:
        """The document in `source`. Raises MaterialError."""
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file: name endings in lower case, and the class that reads it."""

    name: str
    suffixes: frozenset[str]
    module: str
    parser: str
    is_text: bool
    """Whether its bytes are text in some encoding."""


FORMATS: tuple[Format, ...] = (
    Format("markdown", frozenset({".md", ".markdown"}), "markdown", "MarkdownParser", True),
    Format("text", frozenset({".txt", ".text"}), "text", "TextParser", True),
    Format("html", frozenset({".html", ".htm", ".xhtml"}), "html", "HtmlParser", True),
    Format("csv", frozenset({".csv", ".tsv"}), "csv_table", "CsvParser", True),
    Format("pdf", frozenset({".pdf"}), "pdf", "PdfParser", False),
    Format("docx", frozenset({".docx"}), "docx", "DocxParser", False),
    Format("pptx", frozenset({".pptx"}), "pptx", "PptxParser", False),
)
SUPPORTED = ", ".join(sorted(suffix for known in FORMATS for suffix in known.suffixes))


def no_progress(_done: int, _total: int) -> None:
    """For who does not care."""


def format_of(name: str) -> Format | None:
    """The format of a file of this name; None when there is no parser for it."""
    suffix = PurePath(name).suffix.lower()
    return next((known for known in FORMATS if suffix in known.suffixes), None)


def is_supported(name: str) -> bool:
    """Whether there is a parser for a file of this name."""
    return format_of(name) is not None


def parser_for(name: str, head: bytes) -> MaterialParser:
    """The parser for a file of this name that begins with `head`. Raises MaterialError
    (`unsupported`, `not_this_format`)."""
    known = format_of(name)
    if known is None:
        raise MaterialError("unsupported", name=name, supported=SUPPORTED)
    if not _may_be(known, head):
        raise MaterialError("not_this_format", name=name)
    module = import_module(f"server.app.materials.{known.module}")
    parser: MaterialParser = getattr(module, known.parser)()
    return parser


_ZIP, _PDF, _OLE = b"PK\x03\x04", b"%PDF-", b"\xd0\xcf\x11\xe0"


def _may_be(known: Format, head: bytes) -> bool:
    """Whether a file that begins like this can be of the format at all."""
    match known.name:
        case "pdf":
            return _PDF in head[:1024]
        case "docx" | "pptx":
            # What is locked by a password is an OLE file; the parser tells it apart.
            return head.startswith((_ZIP, _OLE))
        case _:
            return not head.startswith((_ZIP, _PDF, _OLE))
