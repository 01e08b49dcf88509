"""`AcceptanceRates`: how often the token behind a match of so many tokens comes again."""

from __future__ import annotations

from engine.speculation.ngram_index import MAX_LENGTH, MIN_LENGTH

_FIRST_GUESS = {length: 1.0 - 1.0 / length for length in range(MIN_LENGTH, MAX_LENGTH + 1)}
"""Before anything was seen. Drafts are tried at once, and a few misses are enough to stop."""


class AcceptanceRates:
    """A rate for each match length, by counts that fade. Owned by the engine thread.

    The rates of one sequence lean on those of all (`parent`) until it has some of its own. They
    learn from every token behind a match, drafted or not: what would have been right is known
    without trying it, so a sequence that begins to quote is noticed at no cost."""

    __slots__ = ("_hits", "_keep", "_parent", "_trials", "_weight")

    def __init__(
        self, parent: AcceptanceRates | None = None, *, keep: float = 0.9, weight: float = 3.0
    ) -> None:
        """`keep`: what is left of a count after one more of its length. `weight`: how many tokens
        of its own a rate needs to count as much as what it leans on."""
        self._parent = parent
        self._keep = keep
        self._weight = weight
        self._hits = [0.0] * (MAX_LENGTH + 1)
        self._trials = [0.0] * (MAX_LENGTH + 1)

    def observe(self, length: int, is_hit: bool) -> None:
        """A match of `length` tokens foretold a token rightly or not."""
        self._hits[length] = self._keep * self._hits[length] + is_hit
        self._trials[length] = self._keep * self._trials[length] + 1.0
        if self._parent is not None:
            self._parent.observe(length, is_hit)

    def rate(self, length: int) -> float:
        """The chance that the token behind a match of `length` tokens comes; between 0 and 1."""
        prior = _FIRST_GUESS[length] if self._parent is None else self._parent.rate(length)
        return (self._hits[length] + self._weight * prior) / (self._trials[length] + self._weight)
