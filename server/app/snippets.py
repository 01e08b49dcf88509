"""`snippet`: the part of a text that shows why a search has found it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import regex

from server.store.analysis import QueryUnit, fold
from server.store.concepts import stem

_CHARS = 160
_BEFORE = 40
"""Characters that are shown in front of the first word."""
_MOST_CHARS = 100_000
"""Characters of a text that are looked at: as many as are indexed."""
_HAN = r"\p{Han}\p{Hiragana}\p{Katakana}"
_RUN = regex.compile(
    rf"(?P<han>[{_HAN}]+)|(?P<word>[[\p{{L}}\p{{N}}\p{{M}}]--[{_HAN}]]+)", regex.V1
)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A part of a text on one line; `marks` are the ranges of `text` that were looked for, in
    code points."""

    text: str
    marks: tuple[tuple[int, int], ...]


def snippet(text: str, units: Sequence[QueryUnit]) -> Snippet | None:
    """The part with the first of the words; None where the text holds none of them."""
    line = " ".join(text[:_MOST_CHARS].split())
    places = _joined(_places(line, units))
    first = next(places, None)
    if first is None:
        return None
    start = _word_start(line, max(0, first[0] - _BEFORE))
    end = min(len(line), start + _CHARS)
    head, tail = "…" if start else "", "…" if end < len(line) else ""
    shift = len(head) - start
    marks = []
    for begin, stop in [first, *places]:
        if stop > end:
            break
        marks.append((begin + shift, stop + shift))
    return Snippet(head + line[start:end] + tail, tuple(marks))


def beginning(text: str) -> str:
    """How a text begins, on one line: what is shown where its words were found by others."""
    line = " ".join(text[:_MOST_CHARS].split())
    return line if len(line) <= _CHARS else line[:_CHARS] + "…"


def _places(line: str, units: Sequence[QueryUnit]) -> Iterator[tuple[int, int]]:
    words = {word for unit in units for word in (*unit.words, *unit.extra)}
    prefixes = tuple({word for unit in units if unit.prefix for word in unit.words})
    for run in _RUN.finditer(line):
        if run["word"]:
            folded = fold(run["word"])
            if stem(folded) in words or (prefixes and folded.startswith(prefixes)):
                yield run.span()
            continue
        for at in range(run.start(), run.end()):
            pair = fold(line[at : min(at + 2, run.end())])
            if len(pair) == 2 and pair in words:
                yield at, at + 2
            elif pair[:1] in prefixes:
                yield at, at + 1


def _joined(places: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Places that touch as one. They come in order."""
    current: tuple[int, int] | None = None
    for start, end in places:
        if current is not None and start <= current[1]:
            current = (current[0], max(end, current[1]))
            continue
        if current is not None:
            yield current
        current = (start, end)
    if current is not None:
        yield current


def _word_start(line: str, at: int) -> int:
    """The start of a word near `at`, in front of which nothing is cut in two."""
    if at == 0:
        return 0
    blank = line.find(" ", at, at + 20)
    return at if blank < 0 else blank + 1
