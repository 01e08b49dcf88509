"""`without_furniture`: pages without what a typesetter puts on each of them.

Running heads and feet, page numbers, a slide's side bar, and lines of a table of contents that
lead to page numbers by dots: text that says nothing where it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import regex

from server.app.materials.pdf_headings import body_size
from server.app.materials.pdf_page import Line, PageLines

_DIGITS = regex.compile(r"\d+|\b[ivxlc]+\b")
_PAGE_NUMBER = regex.compile(r"\W*\d{1,4}(\s*/\s*\d{1,4})?\W*|\W*[ivxlc]{1,6}\W*|第\s*\d+\s*页.*")
_NUMBER_AT_END = regex.compile(r"^\d{1,4}\s|\s\d{1,4}$")
# From where a run of dots begins, and all of it.
_LEADER = regex.compile(r"(?<![.．·…]\s?)(?:\s?[.．·…]){4,}+\s*+[\divxlc–-]{0,9}$")
_EDGE_LINES = 2
_LEAST_PAGES = 3
_RUNNING_SHARE = 0.2
_HEAD_SHARE = 0.3
_NUMBERED_SHARE = 0.6
_NEARBY_PAGES = 2
_SAME_PLACE_SHARE = 0.5
_EVERYWHERE_SHARE = 0.8
_LARGEST = 1.15
"""Larger lines are headings, even when they differ in nothing but their number, unless they are
on nearly every page."""


def without_furniture(pages: Sequence[PageLines]) -> list[PageLines]:
    """The pages with what is read. Short documents keep more: nothing can be seen to repeat."""
    largest = _LARGEST * body_size(pages)
    running = _running(pages)
    places = _repeated_places(pages, _SAME_PLACE_SHARE)
    everywhere = _repeated_places(pages, _EVERYWHERE_SHARE)
    heads = _head_places(pages, running)
    cleaned = []
    for page in pages:
        edge = {id(line) for line in _edges(page.lines)}
        kept = [
            line
            for line in page.lines
            if (line.size > largest and _place(line) not in everywhere)
            or not (
                _place(line) in places
                or (
                    id(line) in edge
                    and (
                        (page.number, _key(line)) in running
                        or _height(line) in heads
                        or _PAGE_NUMBER.fullmatch(line.text)
                    )
                )
            )
        ]
        cleaned.append(replace(page, lines=tuple(_without_leaders(kept))))
    return cleaned


def _edges(lines: Sequence[Line]) -> list[Line]:
    """The highest and the lowest lines of a page, in whatever order they were drawn."""
    by_height = sorted(lines, key=lambda line: -line.y)
    num_edge = _EDGE_LINES if len(by_height) > 3 * _EDGE_LINES else 1
    return by_height[:num_edge] + by_height[-num_edge:]


def _key(line: Line) -> str:
    return str(_DIGITS.sub("#", line.text))


def _height(line: Line) -> int:
    return round(line.y / 2)


def _place(line: Line) -> tuple[str, int, int]:
    return line.text, round(line.x), round(line.y)


def _running(pages: Sequence[PageLines]) -> set[tuple[int, str]]:
    """(page, key) of edge lines that repeat, numbers apart: on many pages, or on pages near by
    at the same height, as the titles of chapters do."""
    seen: dict[tuple[str, int], list[int]] = {}
    counts: Counter[str] = Counter()
    for page in pages:
        edges = _edges(page.lines)
        counts.update({_key(line) for line in edges})
        for line in edges:
            seen.setdefault((_key(line), _height(line)), []).append(page.number)
    least = max(_LEAST_PAGES, _RUNNING_SHARE * len(pages))
    common = {key for key, count in counts.items() if count >= least}
    running = {
        (page.number, _key(line))
        for page in pages
        for line in _edges(page.lines)
        if _key(line) in common
    }
    for (key, _), numbers in seen.items():
        if len(numbers) >= _LEAST_PAGES:
            for before, after in pairwise(numbers):
                if after - before <= _NEARBY_PAGES:
                    running |= {(before, key), (after, key)}
    return running


def _head_places(pages: Sequence[PageLines], running: set[tuple[int, str]]) -> set[int]:
    """Heights at which so many pages have a running line, or one that begins or ends with a
    number, that any line there is one."""
    if len(pages) < 2 * _LEAST_PAGES:
        return set()
    repeated: Counter[int] = Counter()
    numbered: Counter[int] = Counter()
    for page in pages:
        edges = _edges(page.lines)
        repeated.update({_height(line) for line in edges if (page.number, _key(line)) in running})
        numbered.update({_height(line) for line in edges if _NUMBER_AT_END.search(line.text)})
    least = max(2 * _LEAST_PAGES, _HEAD_SHARE * len(pages))
    least_numbered = max(2 * _LEAST_PAGES, _NUMBERED_SHARE * len(pages))
    return {height for height, count in repeated.items() if count >= least} | {
        height for height, count in numbered.items() if count >= least_numbered
    }


def _repeated_places(pages: Sequence[PageLines], share: float) -> set[tuple[str, int, int]]:
    """Lines that stand in the same words at the same place on that share of the pages."""
    counts: Counter[tuple[str, int, int]] = Counter()
    for page in pages:
        counts.update({_place(line) for line in page.lines})
    least = max(_LEAST_PAGES + 1, share * len(pages))
    return {place for place, count in counts.items() if count >= least}


def _without_leaders(lines: Sequence[Line]) -> list[Line]:
    leaders = [line for line in lines if _LEADER.search(line.text)]
    if len(leaders) < _LEAST_PAGES:
        return list(lines)
    return [line for line in lines if line not in leaders]
