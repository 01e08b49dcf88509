"""`read_page`: the lines of a PDF's page, with their place, size and font.

PDFium tells characters in the order in which they were drawn, and where lines end. What a line is
for (a heading, code, a row of a table) is for others to say, by what is measured here.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from itertools import pairwise

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c
import regex

_FIXED_PITCH, _FORCE_BOLD = 1 << 0, 1 << 18
_MONOSPACE = regex.compile(
    r"mono|courier|consol|typewriter|cmtt|sftt|ectt|lmtt|inconsolata|menlo|fixed|(?<![a-z])code",
    regex.IGNORECASE,
)
_BOLD = regex.compile(r"bold|black|heavy|cmbx|sfbx|ecbx|sfsx|demi", regex.IGNORECASE)
_COLUMN_GAP = 1.4
"""Blanks that are wider than this many times the size of the letters part columns."""
_MAX_NAME_BYTES = 128

_SOFT_HYPHENS = regex.compile(r"[\u00ad\u0002\ufffe]\s*")
_LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB06: "st"}
_SYMBOL_BULLETS = {0xF0B7: "•", 0xF0A7: "▪", 0xF0D8: "➢", 0xF0FC: "✓", 0xF06C: "●", 0xF06E: "■"}
_GLYPHS = {**_LIGATURES, **_SYMBOL_BULLETS}
_NOT_TEXT = regex.compile(r"[\p{Cc}\p{Co}\p{Cs}\ufffd\ufffe\uffff]")
_CJK = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\u3000-\u303f\uff00-\uffef]")
_BLANKS = regex.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Line:
    """A line as it is printed. Lengths are points; `y` is its base line's, from the page's lower
    edge. Where a hyphen joins two lines they are one, with the second ending at `right` and
    `end_y`. `cells` are its pieces where wide gaps part it, with where each begins."""

    text: str
    page: int
    x: float
    right: float
    y: float
    end_y: float
    size: float
    is_bold: bool
    is_mono: bool
    cells: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PageLines:
    """A page, counted from 1, in the order in which its text was drawn."""

    number: int
    width: float
    height: float
    lines: tuple[Line, ...]


class PageReader:
    """Reads pages of one document. PDFium knows no threads: owned by the only one."""

    def __init__(self) -> None:
        self._x, self._y = ctypes.c_double(), ctypes.c_double()
        self._box = [ctypes.c_double() for _ in range(4)]
        self._name = ctypes.create_string_buffer(_MAX_NAME_BYTES)
        self._flags = ctypes.c_int()

    def read(self, page: pdfium.PdfPage, number: int) -> PageLines:
        """The lines of `page`, which is the document's `number`th."""
        text_page = page.get_textpage()
        try:
            num_chars = text_page.count_chars()
            text = text_page.get_text_range(0, num_chars) if num_chars > 0 else ""
            if len(text) != num_chars:
                # Where one character is not one place, PDFium is asked for each.
                codes = (pdfium_c.FPDFText_GetUnicode(text_page, i) for i in range(num_chars))
                text = "".join(map(chr, codes))
            lines = []
            begin = 0
            for raw in text.split("\n"):
                line = self._line(text_page, raw, begin, number)
                if line is not None:
                    lines.append(line)
                begin += len(raw) + 1
        finally:
            text_page.close()
        width, height = page.get_size()
        return PageLines(number, width, height, tuple(lines))

    def _line(self, text_page: pdfium.PdfTextPage, raw: str, begin: int, page: int) -> Line | None:
        text = clean(raw)
        if not text:
            return None
        visible = [i for i, c in enumerate(raw) if not c.isspace()]
        first, middle, last = (begin + i for i in _ends_and_middle(visible))
        x, y = self._origin(text_page, first)
        size = round(pdfium_c.FPDFText_GetFontSize(text_page, middle), 1) or 1.0
        # Chinese characters are all of one width: only others can tell code from prose.
        latin = [i for i in visible if not _CJK.match(raw[i])]
        sampled = _ends_and_middle(latin) if 4 * len(latin) >= 3 * len(visible) else ()
        fonts = [self._font(text_page, begin + i) for i in sampled or (visible[0],)]
        return Line(
            text=text,
            page=page,
            x=x,
            right=self._extent(text_page, last)[1],
            y=y,
            end_y=self._origin(text_page, last)[1],
            size=size,
            is_bold=all(bold for bold, _ in fonts[:2]),
            is_mono=bool(sampled) and all(mono for _, mono in fonts),
            cells=self._cells(text_page, raw, begin, visible, size),
        )

    def _cells(
        self,
        text_page: pdfium.PdfTextPage,
        raw: str,
        begin: int,
        visible: list[int],
        size: float,
    ) -> tuple[tuple[float, str], ...]:
        starts = [visible[0]]
        for before, after in pairwise(visible):
            if after - before > 1:
                gap = (
                    self._extent(text_page, begin + after)[0]
                    - self._extent(text_page, begin + before)[1]
                )
                if gap > _COLUMN_GAP * size:
                    starts.append(after)
        if len(starts) == 1:
            return ()
        ends = [*starts[1:], len(raw)]
        return tuple(
            (self._extent(text_page, begin + start)[0], clean(raw[start:end]))
            for start, end in zip(starts, ends, strict=True)
        )

    def _origin(self, text_page: pdfium.PdfTextPage, index: int) -> tuple[float, float]:
        pdfium_c.FPDFText_GetCharOrigin(text_page, index, self._x, self._y)
        return self._x.value, self._y.value

    def _extent(self, text_page: pdfium.PdfTextPage, index: int) -> tuple[float, float]:
        """The left and the right edge of a character."""
        left, right, bottom, top = self._box
        pdfium_c.FPDFText_GetCharBox(text_page, index, left, right, bottom, top)
        return left.value, right.value

    def _font(self, text_page: pdfium.PdfTextPage, index: int) -> tuple[bool, bool]:
        """Whether it is bold, and whether all its characters are of one width."""
        pdfium_c.FPDFText_GetFontInfo(text_page, index, self._name, _MAX_NAME_BYTES, self._flags)
        name = self._name.value.decode("utf-8", "replace")
        is_bold = bool(self._flags.value & _FORCE_BOLD) or _BOLD.search(name) is not None
        is_mono = bool(self._flags.value & _FIXED_PITCH) or _MONOSPACE.search(name) is not None
        return is_bold, is_mono


def _ends_and_middle(places: list[int]) -> tuple[int, int, int]:
    return places[0], places[len(places) // 2], places[-1]


def clean(raw: str) -> str:
    """A line's text: hyphens of the typesetter's and what is no character taken out."""
    text = _SOFT_HYPHENS.sub("", raw).translate(_GLYPHS)
    return str(_BLANKS.sub(" ", _NOT_TEXT.sub(" ", text))).strip()
