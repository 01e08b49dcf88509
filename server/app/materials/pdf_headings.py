"""`find_headings`: which lines of a PDF are headings, and of which level.

The document's outline (its bookmarks) names them where there is one; each entry is looked for on
its page. Without an outline, larger or bold short lines are taken for headings.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import regex

from server.app.materials.pdf_page import Line, PageLines

MAX_LEVELS = 6
_NOT_WORDS = regex.compile(r"\W+")
_MAX_HEADING_LINES = 3
_EXTRA_CHARS = 12
_LEAST_ENTRIES = 2
_HAS_NUMBER = regex.compile(r"\p{L}*\s*\d|第|附录")
_ORNAMENT = 1.25
_MAX_ORNAMENT_CHARS = 20
_LARGER = 1.12
_MAX_HEADING_CHARS = 100
_MAX_SIZED_LEVELS = 4
_IS_NUMBER = regex.compile(
    r"(chapter|appendix|section|part|lecture|第|附录)?[a-z]?[\divxlc一二三四五六七八九十]{0,8}[章节讲篇]?"
)
"""What may stand in front of a heading that the outline names without it, blanks apart."""
_SENTENCE_END = (".", ",", ";", "，", "。", "；", "、")
_NUMBERED = regex.compile(
    r"(\d{1,2}(\.\d{1,2}){0,4}\.?|[A-Z](\.\d{1,2}){1,3}|第.{1,3}[章节讲])\s+\S"
)


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """A bookmark: `level` from 0, `page` from 1, `y` where it points to, if it says so."""

    level: int
    title: str
    page: int
    y: float | None


@dataclass(frozen=True, slots=True)
class Heading:
    """`level` from 0. It stands on page `page` in front of line `begin` of that page; the lines
    `begin` to `end` are its own (none when it is only in the outline)."""

    level: int
    text: str
    page: int
    begin: int
    end: int


def body_size(pages: Sequence[PageLines]) -> float:
    """The size that most characters have; 0 without any."""
    sizes: Counter[float] = Counter()
    for page in pages:
        for line in page.lines:
            if not line.is_mono:
                sizes[round(2 * line.size) / 2] += len(line.text)
    return sizes.most_common(1)[0][0] if sizes else 0.0


def find_headings(pages: Sequence[PageLines], outline: Sequence[OutlineEntry]) -> list[Heading]:
    """In order of pages and lines."""
    if len(outline) >= _LEAST_ENTRIES:
        return _from_outline(pages, outline)
    return _from_sizes(pages)


def _from_outline(pages: Sequence[PageLines], outline: Sequence[OutlineEntry]) -> list[Heading]:
    by_number = {page.number: page for page in pages}
    body = body_size(pages)
    found: list[Heading] = []
    for entry in sorted(outline, key=lambda entry: entry.page):
        page = by_number.get(entry.page)
        title = " ".join(entry.title.split())
        if page is None or not title:
            continue
        last = found[-1] if found else None
        after = last.end if last is not None and last.page == entry.page else 0
        begin, end = _find(page.lines, title, after) or _by_height(page.lines, entry.y, after)
        printed = " ".join(line.text for line in page.lines[begin:end])
        is_numbered = len(printed) > len(title) and _HAS_NUMBER.match(printed) is not None
        while begin > after and _is_ornament(page.lines[begin - 1], body):
            begin -= 1
        text = printed if is_numbered else title
        found.append(Heading(min(entry.level, MAX_LEVELS - 1), text, entry.page, begin, end))
    return found


def _is_ornament(line: Line, body: float) -> bool:
    """ "CHAPTER FOUR" in large letters above the chapter's title."""
    return line.size >= _ORNAMENT * body and len(line.text) <= _MAX_ORNAMENT_CHARS


def _find(lines: Sequence[Line], title: str, after: int) -> tuple[int, int] | None:
    """The lines that hold the title and little else, from line `after` on."""
    key = _norm(title)
    if not key:
        return None
    for begin in range(after, len(lines)):
        if not _norm(lines[begin].text):
            continue
        printed = ""
        for end in range(begin + 1, min(begin + _MAX_HEADING_LINES, len(lines)) + 1):
            printed += _norm(lines[end - 1].text)
            if printed.endswith(key) and _IS_NUMBER.fullmatch(printed[: -len(key)]):
                return _shortest(lines, begin, end, key)
            if len(printed) > len(key) + _EXTRA_CHARS:
                break
    return None


def _shortest(lines: Sequence[Line], begin: int, end: int, key: str) -> tuple[int, int]:
    """Without lines in front that only looked like the heading's number."""
    while "".join(_norm(line.text) for line in lines[begin + 1 : end]).endswith(key):
        begin += 1
    return begin, end


def _by_height(lines: Sequence[Line], y: float | None, after: int) -> tuple[int, int]:
    """In front of the first line under the place that the outline points to."""
    if y is None:
        return after, after
    for i in range(after, len(lines)):
        if lines[i].y <= y:
            return i, i
    return after, after


def _norm(text: str) -> str:
    return str(_NOT_WORDS.sub("", unicodedata.normalize("NFKC", text))).casefold()


def _from_sizes(pages: Sequence[PageLines]) -> list[Heading]:
    body = body_size(pages)
    groups = [(page, begin, end) for page in pages for begin, end in _groups(page.lines, body)]
    heads = [page.lines[begin] for page, begin, _ in groups]
    sizes = sorted({_rank(head) for head in heads if _is_large(head, body)}, reverse=True)
    levels = {size: min(level, _MAX_SIZED_LEVELS - 1) for level, size in enumerate(sizes)}
    lowest = min(len(levels), _MAX_SIZED_LEVELS)
    return [
        Heading(
            levels.get(_rank(page.lines[begin]), lowest),
            " ".join(line.text for line in page.lines[begin:end]),
            page.number,
            begin,
            end,
        )
        for page, begin, end in groups
    ]


def _groups(lines: Sequence[Line], body: float) -> list[tuple[int, int]]:
    """Runs of lines that make one heading each."""
    found: list[tuple[int, int]] = []
    for i, line in enumerate(lines):
        if not _may_be_heading(line, body):
            continue
        if found and found[-1][1] == i and _continues(lines[i - 1], line):
            if i - found[-1][0] < _MAX_HEADING_LINES:
                found[-1] = (found[-1][0], i + 1)
            continue
        found.append((i, i + 1))
    return found


def _continues(above: Line, line: Line) -> bool:
    return (
        _rank(above) == _rank(line)
        and above.is_bold == line.is_bold
        and 0 < above.y - line.y < 1.6 * line.size
        and _NUMBERED.match(line.text) is None
    )


def _may_be_heading(line: Line, body: float) -> bool:
    text = line.text
    if (
        len(text) > _MAX_HEADING_CHARS
        or text.endswith(_SENTENCE_END)
        or line.cells
        or not any(c.isalpha() for c in text)
    ):
        return False
    return _is_large(line, body) or (
        line.is_bold and not line.is_mono and line.size >= body and bool(_NUMBERED.match(text))
    )


def _is_large(line: Line, body: float) -> bool:
    return line.size >= _LARGER * body


def _rank(line: Line) -> float:
    return round(line.size)
