"""What of a Markdown text is taken as it stands: code and formulas. Pure, and linear in the text:
a model that fails may write nothing but opening marks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPENING = re.compile(
    r"^[^\S\n]*(?P<fence>```|~~~)|(?P<ticks>`+)|(?P<mark>\$\$|\\\(|\\\[)|(?P<inline>\$[^$\n]+\$)",
    re.MULTILINE,
)
_CLOSING = {"$$": "$$", "\\(": "\\)", "\\[": "\\]"}
_BLOCK_MARKS = ("$$", "\\[")


@dataclass(frozen=True, slots=True)
class Literal:
    """Characters `start` to `end`, their marks included. `is_block`: it stands alone, not in a
    sentence."""

    start: int
    end: int
    is_block: bool


def literals(text: str) -> Iterator[Literal]:
    """Code spans and blocks, inline and displayed formulas, in order. A fence that is not closed
    goes on to the end; other marks that nothing closes open nothing."""
    closings = _Closings(text)
    at = 0
    while (opening := _OPENING.search(text, at)) is not None:
        at = opening.end()
        if fence := opening["fence"]:
            end = closings.of_fence(fence, at) or len(text)
        elif ticks := opening["ticks"]:
            end = closings.of_ticks(ticks, at)
        elif mark := opening["mark"]:
            # Something stands between them.
            end = closings.of_mark(_CLOSING[mark], at + 1)
        else:
            end = at
        if end:
            yield Literal(opening.start(), end, bool(fence) or opening["mark"] in _BLOCK_MARKS)
            at = end


class _Closings:
    """Where what was opened is closed: the end of the closing mark, 0 where there is none. What is
    not found from one place on is looked for no more."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._missing: set[str] = set()

    def of_fence(self, fence: str, start: int) -> int:
        return self._find(rf"(?m)^[^\S\n]*{fence}", start)

    def of_ticks(self, ticks: str, start: int) -> int:
        return self._find(rf"(?<!`){ticks}(?!`)", start)

    def of_mark(self, mark: str, start: int) -> int:
        return self._find(re.escape(mark), start)

    def _find(self, pattern: str, start: int) -> int:
        if pattern in self._missing:
            return 0
        found = re.compile(pattern).search(self._text, start)
        if found is None:
            self._missing.add(pattern)
            return 0
        return found.end()
