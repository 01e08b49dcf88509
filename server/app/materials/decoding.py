"""`decode_text`: bytes as text, whatever encoding they are in; shared by all text formats."""

from __future__ import annotations

import codecs
import dataclasses
from dataclasses import dataclass
from functools import cache

import charset_normalizer
import regex

from server.app.materials.document import ParseLimits
from server.app.materials.errors import MaterialError

_BOMS = (
    # UTF-32 first: its little-endian mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
ENCODINGS = (
    "utf-8",
    "gb18030",
    "big5hkscs",
    "cp932",
    "euc_jp",
    "cp949",
    "cp1252",
    "cp1250",
    "cp1251",
    "koi8_r",
    "utf-16-le",
    "utf-16-be",
)
"""What a person may choose from; each stands for its older relatives too."""
_CHOSEN = {codecs.lookup(name).name: name for name in (*ENCODINGS, *(name for _, name in _BOMS))}
_WIDER = {
    "ascii": "utf-8",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "cp950": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-1": "cp1252",
}
"""Encodings by what holds all of theirs and is what people write who say that they use them."""
_COMMON_SHARE = 0.7
_FREQUENT = frozenset(
    "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子"
    "说产种面而方后多定行学法所民得经十三之进着等部度家电力里如水化高自二理起小物现实加量都两体制机"
    "当使点从业本去把性好应开它合还因由其些然前外天政四日那社义事平形相全表间样与关各重新线内数正"
)
"""Characters that make up more than a third of Chinese running text."""
_FREQUENT_SHARE = 0.1
_FEW_CHARACTERS = 20
_HAN = regex.compile(r"\p{Han}")


@dataclass(frozen=True, slots=True)
class DecodedText:
    """Text and the encoding it was read with. `is_guess`: nothing but statistics spoke for it;
    `is_cut`: it ended in the middle of a character, which is left out."""

    text: str
    encoding: str
    is_guess: bool = False
    is_cut: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """Codes of warnings for the document that is made of the text."""
        codes = {"encoding_guessed": self.is_guess, "text_cut": self.is_cut}
        return tuple(code for code, is_so in codes.items() if is_so)


def decode_text(data: bytes, *, name: str = "text", encoding: str | None = None) -> DecodedText:
    """`data` as text: in `encoding` where one was chosen; else by its byte order mark, as strict
    UTF-8, as strict GB18030 when that gives common characters, or by a guess.

    NUL becomes a blank and line ends are made one. Raises MaterialError (`undecodable`,
    `wrong_encoding`)."""
    decoded = _decode(data) if encoding is None else _decode_as(data, encoding, name)
    if decoded is None:
        raise MaterialError("undecodable", name=name)
    text = decoded.text.replace("\x00", " ").replace("\r\n", "\n").replace("\r", "\n")
    return dataclasses.replace(decoded, text=text)


def encoding_by_mark(data: bytes) -> str | None:
    """The encoding that a byte order mark names."""
    return next((encoding for mark, encoding in _BOMS if data.startswith(mark)), None)


def _decode(data: bytes) -> DecodedText | None:
    if marked := encoding_by_mark(data):
        try:
            return DecodedText(data.decode(marked), marked)
        except UnicodeDecodeError:
            pass  # two bytes at the start of some other text that happen to be a mark
    try:
        return DecodedText(data.decode("utf-8"), "utf-8")
    except UnicodeDecodeError as error:
        # Where all before is ASCII, the last byte may as well be a letter of Latin-1.
        if error.end == len(data) and error.reason == "unexpected end of data":
            text = data[: error.start].decode("utf-8")
            if not text.isascii():
                return DecodedText(text, "utf-8", is_cut=True)
    try:
        text = data.decode("gb18030")
    except UnicodeDecodeError:
        pass
    else:
        if _is_common_chinese(text):
            return DecodedText(text, "gb18030")
    guess = charset_normalizer.from_bytes(data).best()
    if guess is None:
        return None
    # Some encodings have halves of characters of their own, which no other can write.
    text = str(guess).encode("utf-8", "replace").decode()
    return DecodedText(text, guess.encoding, is_guess=True)


def _decode_as(data: bytes, encoding: str, name: str) -> DecodedText:
    """Only encodings of text in a fixed list: Python knows others, some of them slow."""
    try:
        known = codecs.lookup(encoding).name
        chosen = _CHOSEN[codecs.lookup(_WIDER.get(known, known)).name]
        text = data.decode(chosen)
    except (LookupError, UnicodeDecodeError) as error:
        raise MaterialError("wrong_encoding", name=name, encoding=encoding) from error
    return DecodedText(text.removeprefix("\ufeff"), chosen)


def _is_common_chinese(text: str) -> bool:
    """GB18030 gives a character to nearly every pair of bytes, so Big5, Korean or Latin-1 text
    decodes too, as characters that make no Chinese: rare ones, or without the particles that
    every longer text is full of."""
    han = _HAN.findall(text)
    common = _common_characters()
    if not han or sum(c in common for c in han) < _COMMON_SHARE * len(han):
        return False
    num_frequent = sum(c in _FREQUENT for c in han)
    return len(han) < _FEW_CHARACTERS or num_frequent >= _FREQUENT_SHARE * len(han)


@cache
def _common_characters() -> frozenset[str]:
    """Level 1 of GB 2312, rows 16 to 55."""
    rows = bytes(
        byte for row in range(0xB0, 0xD8) for cell in range(0xA1, 0xFF) for byte in (row, cell)
    )
    return frozenset(rows.decode("gb2312", "ignore"))


def require_text(text: str, name: str, limits: ParseLimits) -> None:
    """Raises MaterialError where there is nothing to read, or too much (`no_text`, `too_big`)."""
    if len(text) > limits.max_chars:
        raise MaterialError("too_big", name=name)
    if not text.strip():
        raise MaterialError("no_text", name=name)
