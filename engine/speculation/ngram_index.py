"""`NgramIndex`: where the tokens that end a sequence stood in it before, and what followed."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

MIN_LENGTH = 2
"""Tokens that an earlier place must share with the sequence's end to count as a match."""
MAX_LENGTH = 8
"""Longer matches are not told apart."""
_MAX_CANDIDATES = 16
"""Earlier places that are compared for one token: bounds the work in a repetitive text."""
_NOWHERE = -1


class Followed(NamedTuple):
    """A match of `length` tokens predicted a token; `is_hit`: it came."""

    length: int
    is_hit: bool


class NgramIndex:
    """Finds the longest match of a growing token list's end, in amortized constant time a token.

    Every bigram maps to the last place behind it, and each place to the one before it behind the
    same bigram: at most about 150 bytes a token. Owned by the engine thread."""

    __slots__ = ("_before", "_last", "_length", "_position", "_tokens")

    def __init__(self, token_ids: list[int]) -> None:
        """`token_ids` is kept, not copied: whoever owns it only appends."""
        self._tokens = token_ids
        self._last: dict[int, int] = {}
        # _before[n]: the last place before n behind the same two tokens. None have two before 2.
        self._before = array("i", (_NOWHERE, _NOWHERE))
        self._position = _NOWHERE
        self._length = 0
        self._extend(len(token_ids))
        self._search()

    @property
    def length(self) -> int:
        """Tokens that the match shares with the end, at most MAX_LENGTH; 0: there is none."""
        return self._length

    def catch_up(self) -> Iterator[Followed]:
        """Takes in the tokens that were appended since, and yields for each what the match
        before it had predicted, if there was one."""
        tokens = self._tokens
        for end in range(len(self._before), len(tokens) + 1):
            position, length = self._position, self._length
            self._extend(end)
            if length:
                is_hit = tokens[position] == tokens[end - 1]
                yield Followed(length, is_hit)
                self._position = position + 1
                self._length = min(length + 1, MAX_LENGTH) if is_hit else 0
            if self._length < MAX_LENGTH:
                self._search()

    def draft(self, count: int) -> tuple[int, ...]:
        """The `count` tokens that followed the match. One that overlaps the end repeats itself."""
        tokens, position = self._tokens, self._position
        found = tokens[position : position + count]
        period = len(tokens) - position
        while len(found) < count:
            found.append(found[len(found) - period])
        return tuple(found)

    def _extend(self, end: int) -> None:
        """Indexes the places up to `end`, each behind the two tokens before it."""
        tokens, last, before = self._tokens, self._last, self._before
        for place in range(len(before), end + 1):
            key = tokens[place - 2] << 32 | tokens[place - 1]
            before.append(last.get(key, _NOWHERE))
            last[key] = place

    def _search(self) -> None:
        """Looks for a longer match than the present one; the last place of the longest wins."""
        tokens, before = self._tokens, self._before
        end = len(before) - 1
        place = before[end]
        for _ in range(_MAX_CANDIDATES):
            if place == _NOWHERE or self._length == MAX_LENGTH:
                return
            length = MIN_LENGTH
            longest = min(place, MAX_LENGTH)
            while length < longest and tokens[place - length - 1] == tokens[end - length - 1]:
                length += 1
            if length > self._length:
                self._position, self._length = place, length
            place = before[place]
