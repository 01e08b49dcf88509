"""How well passages fit a question: ranking and coverage. Pure.

Rank: BM25 with a weight per unit of the question and per column of the index, over the course's
own word counts. Coverage: the share of what the question asks for, by rarity, that one passage
holds. Words that occur nowhere in the course count against it, so a question about something
else stays low however well its common words fit; but for less than the rarest of its words,
because they may only be other words for the same thing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from server.store.analysis import QueryUnit
from server.store.search import Hit, WordCounts

_SATURATION = 1.2
_LENGTH_SHARE = 0.2
"""BM25's k1 and b. Passages are of similar, small length, so length matters little."""
_UNKNOWN_WORD = 0.6
"""Share of the greatest rarity that a word counts for which occurs nowhere in the course."""


@dataclass(frozen=True, slots=True)
class Relevance:
    """`rank` orders passages, higher first; `coverage` is between 0 and 1."""

    rank: float
    coverage: float


def score_hits(
    units: Sequence[QueryUnit], hits: Sequence[Hit], counts: WordCounts
) -> list[Relevance]:
    """The relevance of each hit, in the order of `hits`."""
    if not hits:
        return []
    rarities = [_rarity(unit, counts) for unit in units]
    wanted = math.fsum(unit.weight * r for unit, r in zip(units, rarities, strict=True))
    mean_length = sum(hit.num_words for hit in hits) / len(hits) or 1.0
    scored = []
    for hit in hits:
        rank = found = 0.0
        norm = 1 - _LENGTH_SHARE + _LENGTH_SHARE * hit.num_words / mean_length
        for unit, rarity in zip(units, rarities, strict=True):
            frequency = _frequency(unit, hit.words)
            if frequency:
                found += unit.weight * rarity
                saturated = frequency / (frequency + _SATURATION * norm)
                rank += unit.weight * rarity * saturated
        scored.append(Relevance(rank, found / wanted if wanted else 0.0))
    return scored


def _rarity(unit: QueryUnit, counts: WordCounts) -> float:
    """Inverse document frequency, of the unit's most common word that occurs at all."""
    holding = max((counts.holding.get(word, 0) for word in unit.words), default=0)
    total = counts.num_passages
    rarity = math.log(1 + (total - holding + 0.5) / (holding + 0.5))
    return rarity if holding or unit.is_number else rarity * _UNKNOWN_WORD


def _frequency(unit: QueryUnit, words: Mapping[str, float]) -> float:
    if unit.prefix:
        return sum(n for word, n in words.items() if word.startswith(unit.words))
    return max(words.get(word, 0.0) for word in unit.words)
