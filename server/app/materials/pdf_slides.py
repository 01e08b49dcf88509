"""`slide_parts`: a PDF of slides, one part a page, under the slide's title."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from server.app.materials.document import Part, Place
from server.app.materials.pdf_blocks import BlockMaker, is_item, join_lines
from server.app.materials.pdf_headings import OutlineEntry
from server.app.materials.pdf_page import Line, PageLines

_WIDER = 1.15
_MAX_LINES = 40
_MAX_TITLE_CHARS = 100
_TITLE_HEIGHT = 0.55
"""A title stands above this share of the page's height."""


def are_slides(pages: Sequence[PageLines]) -> bool:
    """Whether nearly all pages are wider than high and hold few lines."""
    wide = sum(page.width > _WIDER * page.height for page in pages)
    lines = statistics.median(len(page.lines) for page in pages)
    return wide >= 0.9 * len(pages) and lines < _MAX_LINES


def slide_parts(pages: Sequence[PageLines], outline: Sequence[OutlineEntry]) -> tuple[Part, ...]:
    """Pages that only uncover more of the same slide are one: the last, which has it all."""
    maker = BlockMaker(pages, are_slides=True)
    sections = sorted(
        ((entry.page, entry.title) for entry in outline if entry.level == 0), key=lambda e: e[0]
    )
    parts = []
    for i, page in enumerate(pages):
        if not page.lines or (i + 1 < len(pages) and _is_uncovered_by(page, pages[i + 1])):
            continue
        title, rest = _title(page)
        section = next((name for number, name in reversed(sections) if number <= page.number), "")
        path = tuple(name for name in dict.fromkeys((section, title)) if name)
        parts.append(Part(path, maker.blocks(rest), Place(page=page.number)))
    return tuple(parts)


def _is_uncovered_by(page: PageLines, after: PageLines) -> bool:
    shown = {line.text for line in after.lines}
    return all(line.text in shown for line in page.lines)


def _title(page: PageLines) -> tuple[str, list[Line]]:
    """The slide's title and its other lines."""
    upper = [line for line in page.lines if line.y > _TITLE_HEIGHT * page.height]
    if not upper:
        return "", list(page.lines)
    largest = max(line.size for line in upper)
    highest = max(upper, key=lambda line: line.y)
    first = (
        highest
        if highest.size > 0.95 * largest
        else next(line for line in upper if line.size == largest)
    )
    begin = page.lines.index(first)
    end, title = begin + 1, first.text
    for line in page.lines[begin + 1 :]:
        if line not in upper or abs(line.size - first.size) > 0.5 or largest <= _body(page):
            break
        end, title = end + 1, join_lines(title, line.text)
    if len(title) > _MAX_TITLE_CHARS or is_item(title):
        return "", list(page.lines)
    return title, [*page.lines[:begin], *page.lines[end:]]


def _body(page: PageLines) -> float:
    return statistics.median(line.size for line in page.lines)
