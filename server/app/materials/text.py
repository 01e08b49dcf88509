"""Plain text, and the decoding that every text format shares."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import PurePath

import charset_normalizer

from server.app.materials.errors import UndecodableTextError
from server.app.passages import Document, Section

_BOMS = (
    # UTF-32 first: its little-endian mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MAX_TITLE_CHARS = 80


@dataclass(frozen=True, slots=True)
class DecodedText:
    """Text and the encoding it was read with."""

    text: str
    encoding: str


def decode_text(data: bytes, *, name: str = "text") -> DecodedText:
    """`data` as text: by its byte order mark, as strict UTF-8, as strict GB18030, or by a guess.

    NUL is removed and line ends are made one. Raises UndecodableTextError."""
    decoded = _decode(data)
    if decoded is None:
        raise UndecodableTextError(f"{name}: the text's encoding could not be found out.")
    text = decoded.text.replace("\x00", "").replace("\r\n", "\n").replace("\r", "\n")
    return DecodedText(text, decoded.encoding)


def _decode(data: bytes) -> DecodedText | None:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            try:
                return DecodedText(data.decode(encoding), encoding)
            except UnicodeDecodeError:
                break  # two bytes at the start of some other text that happen to be a mark
    for encoding in ("utf-8", "gb18030"):
        try:
            return DecodedText(data.decode(encoding), encoding)
        except UnicodeDecodeError:
            continue
    guess = charset_normalizer.from_bytes(data).best()
    return None if guess is None else DecodedText(str(guess), guess.encoding)


class TextParser:
    """Plain text: the first line is the title when it is short, and paragraphs are blocks."""

    kind = "text"
    suffixes = frozenset({".txt", ".text"})

    def parse(self, name: str, data: bytes) -> Document:
        """The document in `data`. Raises UndecodableTextError."""
        text = decode_text(data, name=name).text
        first = next((line.strip() for line in text.split("\n") if line.strip()), "")
        title = first if 0 < len(first) <= _MAX_TITLE_CHARS else PurePath(name).stem
        return Document(title, (Section(text, is_markdown=False),))
