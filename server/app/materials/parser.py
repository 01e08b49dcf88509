"""`MaterialParser`: how a file becomes a document; `parser_for` chooses by the file's name."""

from __future__ import annotations

from pathlib import PurePath
from typing import Protocol

from server.app.materials.errors import UnsupportedMaterialError
from server.app.materials.markdown import MarkdownParser
from server.app.materials.text import TextParser
from server.app.passages import Document


class MaterialParser(Protocol):
    """Reads one format. Stateless; safe to call in any thread."""

    @property
    def kind(self) -> str:
        """The format's name, as it is stored."""
        ...

    @property
    def suffixes(self) -> frozenset[str]:
        """File name endings, lower case, with the dot."""
        ...

    def parse(self, name: str, data: bytes) -> Document:
        """The document in `data`; `name` is the file's name. Raises MaterialError."""
        ...


PARSERS: tuple[MaterialParser, ...] = (MarkdownParser(), TextParser())


def is_supported(name: str) -> bool:
    """Whether there is a parser for a file of this name."""
    return any(PurePath(name).suffix.lower() in parser.suffixes for parser in PARSERS)


def parser_for(name: str) -> MaterialParser:
    """The parser for a file of this name. Raises UnsupportedMaterialError."""
    suffix = PurePath(name).suffix.lower()
    for parser in PARSERS:
        if suffix in parser.suffixes:
            return parser
    known = ", ".join(sorted(suffix for parser in PARSERS for suffix in parser.suffixes))
    raise UnsupportedMaterialError(
        f"{name}: files of this kind cannot be read. Supported are {known}."
    )
