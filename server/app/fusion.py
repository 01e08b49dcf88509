"""Search by meaning beside search by words: what it promises, and how both orders become one. Pure.

By weighted reciprocal rank: plain fusion of equals makes a good order by words worse.
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
