"""Where a passage stands in its material, and a part of the material around it. Pure, but for
the clock: for a large text, call it in a thread.

A passage is not always a piece of its material to the letter: lines are joined, lists numbered
anew, bold lines say where a section begins, and a lead-in or a table's head is repeated in each
piece. So words are compared, and what lies between them is not; where that finds nothing, the
passage's own blocks are looked for one by one.

All offsets are in code points.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import regex

_HAN = r"\p{Han}\p{Hiragana}\p{Katakana}"
# Between two Han characters a line may end anywhere, so each is a word of its own.
_WORD = regex.compile(rf"[{_HAN}]|[[\p{{L}}\p{{N}}\p{{M}}]--[{_HAN}]]+", regex.V1)
_BETWEEN = r"[^\p{L}\p{N}\p{M}]*+"
_MOST_WORDS = 400
"""Words of a pattern: the beginning and the end of a long passage say where it is."""
_LEAST_LETTERS = 12
"""A block with fewer stands in too many places to say where a passage is."""
_MOST_PLACES = 200
"""Places of a text that occurs again and again which are looked at."""
_SEARCH_S = 2.0
"""After so long a passage counts as not found: it would be of a few words, again and again."""
_EDGE = 2_000
"""How far a part may grow at each end so that it is cut between blocks."""
_BREAK = regex.compile(r"\n[ \t]*\n")
_FENCE = regex.compile(r"^ {0,3}(?P<mark>`{3,}|~{3,})(?P<info>[^\n]*)$", regex.MULTILINE)


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a text: `text` begins at `offset`. `range`: where in the whole what was asked
    for stands, [start, end); None where it does not."""

    offset: int
    text: str
    range: tuple[int, int] | None


def around(text: str, found: tuple[int, int] | None, *, num_chars: int) -> Place:
    """About `num_chars` characters of `text` with the range `found` in their middle, and at least
    the whole of it; the beginning where nothing was found."""
    if found is None:
        return part(text, 0, num_chars)
    spare = max(0, num_chars - (found[1] - found[0]))
    start = max(0, found[0] - spare // 2)
    end = min(len(text), max(start + num_chars, found[1]))
    start = max(0, min(start, end - num_chars))
    return _cut(text, start, end, found)


def part(text: str, offset: int, num_chars: int) -> Place:
    """About `num_chars` characters from `offset`."""
    start = min(max(0, offset), len(text))
    return _cut(text, start, min(len(text), start + num_chars), None)


def find(text: str, passage: str, *, near: float = 0.0) -> tuple[int, int] | None:
    """Where the passage stands, from its first to its last word; the place nearest to `near`
    where there are several. None where it does not."""
    wanted = passage.strip()
    if not wanted:
        return None
    expected = near * len(text)
    if found := _nearest(_exactly(text, wanted), expected):
        return found
    search = _Search(text, expected, time.monotonic() + _SEARCH_S)
    try:
        found = search.by_words(wanted) or search.by_blocks(wanted)
    except TimeoutError:
        return None
    return found and _with_signs(text, wanted, found)


@dataclass(frozen=True, slots=True)
class _Search:
    """What is looked for in which text, where it is expected, and until when. Its methods raise
    TimeoutError."""

    text: str
    expected: float
    deadline_s: float

    def by_words(self, wanted: str) -> tuple[int, int] | None:
        """Where the words of `wanted` stand one after the other."""
        return _nearest(self._places(wanted, 0, len(self.text)), self.expected)

    def by_blocks(self, wanted: str) -> tuple[int, int] | None:
        """From the first to the last of its blocks that stand near the longest one."""
        blocks = _blocks(wanted)
        anchor = None
        for block in sorted(blocks, key=len, reverse=True):
            for piece in _without_head(block):
                if anchor := self.by_words(piece):
                    break
            if anchor:
                break
        if anchor is None:
            return None
        reach = len(wanted) + 200
        start, end = anchor
        low, high = max(0, end - reach), min(len(self.text), start + reach)
        for block in blocks:
            for begin, stop in self._places(block, low, high):
                # What each piece of a table repeats stands far in front of this one.
                if max(end, stop) - min(start, begin) <= reach:
                    start, end = min(start, begin), max(end, stop)
        return start, end

    def _places(self, wanted: str, low: int, high: int) -> Iterator[tuple[int, int]]:
        words = _WORD.findall(wanted)
        if not words:
            return
        pattern = _pattern(words[:_MOST_WORDS])
        tail = _pattern(words[-_MOST_WORDS:]) if len(words) > _MOST_WORDS else None
        for start, end in self._matches(pattern, low, high):
            if tail is None:
                yield start, end
                continue
            until = min(high, start + 3 * len(wanted))
            if last := next(self._matches(tail, start, until), None):
                yield start, max(end, last[1])

    def _matches(
        self, pattern: regex.Pattern[str], low: int, high: int
    ) -> Iterator[tuple[int, int]]:
        left_s = max(0.001, self.deadline_s - time.monotonic())
        # `concurrent`: the event loop goes on meanwhile.
        for match in pattern.finditer(self.text, low, high, concurrent=True, timeout=left_s):
            yield match.span()


def _exactly(text: str, wanted: str) -> Iterator[tuple[int, int]]:
    at = text.find(wanted)
    while at >= 0:
        yield at, at + len(wanted)
        at = text.find(wanted, at + 1)


def _pattern(words: list[str]) -> regex.Pattern[str]:
    return regex.compile(_BETWEEN.join(regex.escape(word) for word in words), regex.V1)


def _with_signs(text: str, wanted: str, found: tuple[int, int]) -> tuple[int, int]:
    """The place with the signs in front of the first word and after the last."""
    words = list(_WORD.finditer(wanted))
    before, after = wanted[: words[0].start()], wanted[words[-1].end() :]
    start, end = found
    start -= len(before) if text.endswith(before, 0, start) else 0
    end += len(after) if text.startswith(after, end) else 0
    return start, end


def _blocks(wanted: str) -> list[str]:
    blocks = [block for block in _BREAK.split(wanted) if len(_letters(block)) >= _LEAST_LETTERS]
    if len(blocks) >= 2:
        return blocks
    return [line for line in wanted.split("\n") if len(_letters(line)) >= _LEAST_LETTERS]


def _without_head(block: str) -> Iterator[str]:
    """The block, and what is left of it without the head that each piece of a table repeats."""
    yield block
    lines = block.split("\n")
    for num_lines in (1, 2):
        rest = "\n".join(lines[num_lines:])
        if len(_letters(rest)) >= _LEAST_LETTERS:
            yield rest


def _letters(block: str) -> str:
    return "".join(_WORD.findall(block))


def _nearest(places: Iterator[tuple[int, int]], expected: float) -> tuple[int, int] | None:
    best = None
    for _, place in zip(range(_MOST_PLACES), places, strict=False):
        if best is None or abs(place[0] - expected) < abs(best[0] - expected):
            best = place
    return best


def _cut(text: str, start: int, end: int, found: tuple[int, int] | None) -> Place:
    """The part from `start` to `end`, each moved outwards to the border of a block, and out of
    the code that it lies in."""
    if start > 0:
        before = [match.end() for match in _BREAK.finditer(text, max(0, start - _EDGE), start + 2)]
        start = before[-1] if before and before[-1] <= start else _line_start(text, start)
    if end < len(text):
        after = _BREAK.search(text, max(0, end - 1), min(len(text), end + _EDGE))
        end = after.end() if after else _line_end(text, end)
    for opening, closing in _fences(text):
        if opening > end:
            break
        if opening < start < closing and start - opening <= _EDGE:
            start = opening
        if opening < end < closing and closing - end <= _EDGE:
            end = closing
    return Place(start, text[start:end], found)


def _fences(text: str) -> Iterator[tuple[int, int]]:
    """Where code between fences begins and ends."""
    opened: regex.Match[str] | None = None
    for match in _FENCE.finditer(text, concurrent=True):
        if opened is None:
            opened = match
        elif (
            match["mark"][0] == opened["mark"][0]
            and len(match["mark"]) >= len(opened["mark"])
            and not match["info"].strip()
        ):
            yield opened.start(), match.end()
            opened = None


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", max(0, at - _EDGE), at) + 1 or at


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at, at + _EDGE)
    return at if found < 0 else found + 1
