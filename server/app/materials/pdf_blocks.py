"""`BlockMaker`: lines of a PDF become paragraphs, lists, code and rows of tables again."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import regex

from server.app.materials.document import Block, Place
from server.app.materials.markdown import add_led_block
from server.app.materials.pdf_page import Line, PageLines

_BULLET = regex.compile(r"[•◦▪‣●○■□▶►➢✓∙◆◇★]\s*(?=\S)")
_DASH = regex.compile(r"[-–—*·]\s+(?=\S)")
_NUMBER = regex.compile(r"(?:\(?(?:\d{1,2}|[a-zA-Z])[.)]|[（(]\d{1,2}[）)]|[①-⑳])\s*(?=\S)")
_NUMBER_AND_BLANK = regex.compile(r"\(?(?:\d{1,2}|[a-zA-Z])[.)]\s")
_BARE_NUMBER = regex.compile(r"\d{1,2}\s+(?=\p{Lu}|\p{Han})")
_TERMINAL = regex.compile(r"[.!?:。！？：；…][\"'”’)）」]*$")
_CJK = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\u3000-\u303f\uff00-\uffef]")
_COMMENTS = ("#", "//", "%", ";", "--")
_DEFAULT_LEADING = 1.2
_NEW_PARAGRAPH_GAP = 1.28
_NEW_SENTENCE_GAP = 1.08
_BLANK_LINE_GAP = 1.7
_FULL_LINE = 0.9
_CELL_TOLERANCE = 4.0
_COLUMN_TOLERANCE = 6.0


@dataclass(slots=True)
class _Paragraph:
    """Lines that belong together. `marker` is what an item of a list begins with."""

    kind: str
    lines: list[Line]
    marker: str = ""
    rows: list[list[tuple[float, str]]] = field(default_factory=list)

    @property
    def place(self) -> Place:
        return Place(page=self.lines[0].page).until(Place(page=self.lines[-1].page))


class BlockMaker:
    """Knows how a document is set: its leading, and how far its lines reach. Immutable."""

    def __init__(self, pages: Sequence[PageLines], *, are_slides: bool = False) -> None:
        """`are_slides`: items may be counted by numbers without a full stop."""
        self._are_slides = are_slides
        self._leading = _leading(pages)
        margins = {page.number: _right_margin(page) for page in pages if page.lines}
        # A page with nothing but short lines has a margin all the same.
        usual = statistics.median(margins.values()) if margins else 0.0
        self._right = {number: max(margin, usual) for number, margin in margins.items()}

    def blocks(self, lines: Sequence[Line]) -> tuple[Block, ...]:
        """The blocks of one section, whose lines may run over several pages."""
        paragraphs: list[_Paragraph] = []
        for i, line in enumerate(lines):
            after = lines[i + 1] if i + 1 < len(lines) else None
            self._add(paragraphs, line, after)
        blocks: list[Block] = []
        items: list[_Paragraph] = []
        for paragraph in paragraphs:
            if paragraph.kind == "item":
                items.append(paragraph)
                continue
            _flush(items, blocks)
            _append(blocks, paragraph)
        _flush(items, blocks)
        return tuple(blocks)

    def _add(self, paragraphs: list[_Paragraph], line: Line, after: Line | None) -> None:
        last = paragraphs[-1] if paragraphs else None
        if self._is_code(last, line):
            if last is not None and last.kind == "code" and last.lines[-1].page == line.page:
                last.lines.append(line)
            else:
                paragraphs.append(_Paragraph("code", [line]))
            return
        if last is not None and last.kind == "rows" and self._add_to_row(last, line):
            return
        if _is_row(line) and (
            (last is not None and last.kind == "rows")
            or (after is not None and _is_row(after) and _share_column(line, after))
        ):
            if last is not None and last.kind == "rows" and self._is_near(last.lines[-1], line, 3):
                last.lines.append(line)
                last.rows.append(list(line.cells))
            else:
                paragraphs.append(_Paragraph("rows", [line], rows=[list(line.cells)]))
            return
        marker = self._marker(last, line)
        if marker:
            paragraphs.append(_Paragraph("item", [line], marker))
        elif last is not None and last.kind in ("text", "item") and self._continues(last, line):
            last.lines.append(line)
        else:
            paragraphs.append(_Paragraph("text", [line]))

    def _is_code(self, last: _Paragraph | None, line: Line) -> bool:
        if last is None or last.kind == "rows":
            return line.is_mono
        above = last.lines[-1]
        if last.kind == "code":
            return line.is_mono or (
                # A comment in another script has another font.
                above.page == line.page
                and abs(above.size - line.size) < 1
                and line.text.startswith(_COMMENTS)
            )
        # A line of a paragraph may happen to be all code.
        is_wrapped = self._is_full(above) and self._continues(last, line)
        return line.is_mono and not is_wrapped

    def _add_to_row(self, rows: _Paragraph, line: Line) -> bool:
        """Whether the line goes on with a cell of the row above, not the first."""
        above = rows.lines[-1]
        if line.cells or not self._is_near(above, line, 1.3):
            return False
        row = rows.rows[-1]
        for i, (x, text) in enumerate(row[1:], start=1):
            if abs(x - line.x) < _CELL_TOLERANCE:
                row[i] = (x, join_lines(text, line.text))
                rows.lines.append(line)
                return True
        return False

    def _marker(self, last: _Paragraph | None, line: Line) -> str:
        """What makes the line an item of a list; "" for any other line."""
        if match := _BULLET.match(line.text):
            return str(match[0])
        above = last.lines[-1] if last is not None else None
        is_free = above is None or last is None or not self._continues(last, line)
        in_list = last is not None and last.kind == "item"
        if match := _DASH.match(line.text):
            return str(match[0]) if is_free or in_list else ""
        if self._are_slides and (is_free or in_list) and (match := _BARE_NUMBER.match(line.text)):
            # As long as what it stands for: it is cut off the text again.
            return f"{match[0].strip()}. "[: len(match[0])]
        match = _NUMBER.match(line.text)
        if match and (is_free or (in_list and _NUMBER_AND_BLANK.match(line.text) is not None)):
            return str(match[0])
        return ""

    def _continues(self, last: _Paragraph, line: Line) -> bool:
        """Whether the line belongs to the paragraph or item above it."""
        above = last.lines[-1]
        is_open = _TERMINAL.search(above.text) is None
        if above.page != line.page:
            return is_open and self._is_full(above) and abs(above.size - line.size) < 1
        drop = (above.end_y - line.y) / max(line.size, above.size)
        if last.kind == "item" and is_open and line.x > last.lines[0].x + 0.5 * line.size:
            return 0 < drop < self._leading * _BLANK_LINE_GAP  # indented under its marker
        if drop < 0.3 or drop > self._leading * _NEW_PARAGRAPH_GAP:
            return drop >= -0.2 and drop < 0.3 and line.x > above.x  # the same line, in two
        if not is_open and (drop > self._leading * _NEW_SENTENCE_GAP or not self._is_full(above)):
            return False
        if abs(above.size - line.size) > 0.15 * line.size:
            return False
        indent = line.x - (above.x if last.kind == "text" else last.lines[0].x)
        if last.kind == "item":
            return indent > -0.8 * line.size
        return indent < 0.8 * line.size

    def _is_near(self, above: Line, line: Line, factor: float) -> bool:
        drop = above.end_y - line.y
        return above.page == line.page and 0 < drop < factor * self._leading * line.size

    def _is_full(self, line: Line) -> bool:
        """Whether the line reaches the right margin, so that the text went on below."""
        return line.right >= _FULL_LINE * self._right[line.page]


def is_item(text: str) -> bool:
    """Whether it begins as an item of a list."""
    return _BULLET.match(text) is not None or _DASH.match(text) is not None


def join_lines(above: str, below: str) -> str:
    """Two lines of a paragraph as one: with a blank, but not between Chinese characters."""
    if _CJK.match(above[-1:]) and _CJK.match(below[:1]):
        return above + below
    if above.endswith("-") and below[:1].islower() and above[-2:-1].isalpha():
        return above + below
    return f"{above} {below}"


def _leading(pages: Sequence[PageLines]) -> float:
    """The usual distance of base lines, in sizes of the letters."""
    drops = [
        (above.y - below.y) / below.size
        for page in pages
        for above, below in pairwise(page.lines)
        if above.size == below.size and not below.is_mono
    ]
    usual = [drop for drop in drops if 0.9 < drop < 2.0]
    return statistics.median(usual) if usual else _DEFAULT_LEADING


def _right_margin(page: PageLines) -> float:
    rights = sorted(line.right for line in page.lines)
    return rights[int(0.9 * (len(rights) - 1))]


def _is_row(line: Line) -> bool:
    """Whether wide gaps part the line into cells, and not just a marker from its text."""
    if len(line.cells) < 2:
        return False
    first = line.cells[0][1]
    is_marker = any(p.fullmatch(f"{first} x", partial=True) for p in (_BULLET, _DASH, _NUMBER))
    return not (is_marker and len(line.cells) == 2)


def _share_column(above: Line, below: Line) -> bool:
    """Whether a cell other than the first begins at the same place. A wide gap alone may be a
    formula's, or a justified line's."""
    return not below.is_mono and any(
        abs(x - other) < _COLUMN_TOLERANCE
        for x, _ in above.cells[1:]
        for other, _ in below.cells[1:]
    )


def _append(blocks: list[Block], paragraph: _Paragraph) -> None:
    match paragraph.kind:
        case "code":
            code = _code(paragraph.lines)
            fence = "~~~" if "```" in code else "```"
            block = Block("fence", code, f"{fence}\n", f"\n{fence}", place=paragraph.place)
            add_led_block(blocks, block)
        case "rows":
            rows = (" | ".join(text for _, text in row) for row in paragraph.rows)
            add_led_block(blocks, Block("table", "\n".join(rows), place=paragraph.place))
        case _:
            blocks.append(Block("paragraph", _text(paragraph.lines), place=paragraph.place))


def _text(lines: Sequence[Line]) -> str:
    text = lines[0].text
    for line in lines[1:]:
        text = join_lines(text, line.text)
    return text


def _code(lines: Sequence[Line]) -> str:
    """Lines of code with their indentation, and a blank line where there is a gap."""
    widths = [(line.right - line.x) / len(line.text) for line in lines if len(line.text) > 3]
    width = max(statistics.median(widths), 1.0) if widths else lines[0].size / 2
    left = min(line.x for line in lines)
    drops = [above.y - below.y for above, below in pairwise(lines)]
    usual = statistics.median(drops) if drops else 0.0
    written = []
    for i, line in enumerate(lines):
        if i and usual > 0 and drops[i - 1] > _BLANK_LINE_GAP * usual:
            written.append("")
        written.append(" " * round((line.x - left) / width) + line.text)
    return "\n".join(written)


def _flush(items: list[_Paragraph], blocks: list[Block]) -> None:
    """The items so far as one list; their indentation says how deep they are."""
    if not items:
        return
    lefts: list[float] = []
    written = []
    for item in items:
        x = item.lines[0].x
        while lefts and x < lefts[-1] - 3:
            lefts.pop()
        if not lefts or x > lefts[-1] + 3:
            lefts.append(x)
        text = _text(item.lines)[len(item.marker) :]
        marker = item.marker.strip() if any(c.isalnum() for c in item.marker) else "-"
        written.append("  " * (len(lefts) - 1) + f"{marker} {text}")
    is_ordered = items[0].marker[:1].isdigit()
    place = items[0].place.until(items[-1].place)
    kind = "ordered_list" if is_ordered else "bullet_list"
    add_led_block(blocks, Block(kind, "\n".join(written), place=place))
    items.clear()
