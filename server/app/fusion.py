"""What else than their words may order passages: what it promises, and how orders become one. Pure.

A search by meaning counts by weighted reciprocal rank: plain fusion of equals makes a good order by
words worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

_RANK_OFFSET = 10
"""The constant of reciprocal rank fusion: small, so that the first places count for much."""


class SemanticSearch(Protocol):
    """Finds passages by meaning."""

    @property
    def weight(self) -> float:
        """What its order counts for, where the order by words counts 1."""
        ...

    async def nearest(
        self, course_id: str, question: str, *, limit: int
    ) -> Sequence[tuple[str, float]]:
        """(passage id, similarity) of up to `limit` passages, nearest first; hidden ones
        included. None for a question in a language that the model does not know."""
        ...


class Judge(Protocol):
    """Helps where passages fit a question about equally well by words."""

    async def likelihoods(
        self, question: str, texts: Sequence[str], *, user: str, course_id: str, since: float
    ) -> Sequence[float] | None:
        """How likely the question is after each text: the natural logarithm of a probability. For
        `user`, about passages of one course. None where nothing can be said in time; the time of
        all parts of a question together counts from `since` (`time.monotonic`) on."""
        ...


class Reranker(Protocol):
    """Judges pairs of a question and a text."""

    async def scores(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        """How well each text answers the question, higher for better."""
        ...


def fuse(lexical: Sequence[str], semantic: Sequence[str], weight: float) -> Mapping[str, float]:
    """The fused score of every id of either order; `weight` is the second one's."""
    scores: dict[str, float] = {}
    for order, worth in ((lexical, 1.0), (semantic, weight)):
        for place, id in enumerate(order, start=1):
            scores[id] = scores.get(id, 0.0) + worth / (_RANK_OFFSET + place)
    return scores
