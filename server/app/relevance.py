"""How well passages fit a question: ranking and coverage. Pure.

Rank: BM25 with a weight per unit of the question and per column of the index, over the course's
own word counts; half of it for the whole passage, half for the items in it that fit best, since
words that stand together say more than the same words scattered over sections. Coverage: the
share of what the question asks for, by rarity, that one passage holds. Words that occur nowhere
in the course count against it, so a question about something else stays low however well its
common words fit; but for less than the rarest of its words, because they may only be other words
for the same thing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from server.store.analysis import QueryUnit, is_han
from server.store.passage_index import Hit, ItemWords, WordCounts

_SATURATION = 1.2
_LENGTH_SHARE = 0.2
"""BM25's k1 and b. Passages are of similar, small length, so length matters little."""
_ITEM_SATURATION, _ITEM_LENGTH_SHARE, _ITEM_LENGTH = 0.6, 0.5, 60
"""The same for items: a word is seldom said twice, and they differ in length; the last is a usual
number of words."""
_SECOND_ITEM = 0.3
"""What the second best item counts beside the best."""
_ITEMS_SHARE = 0.5
_UNKNOWN_WORD = 0.6
"""Share of the greatest rarity that a word counts for which occurs nowhere in the course."""
_UNKNOWN_PAIR = 0.5
"""What a pair of Han characters that occurs nowhere counts for against such a word: it may stand
across the border of two words that do occur."""


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
    rarities = [rarity(unit, counts) for unit in units]
    wanted = math.fsum(
        unit.weight * r for unit, r in zip(units, rarities, strict=True) if unit.is_asked
    )
    mean_length = sum(hit.num_words for hit in hits) / len(hits) or 1.0
    scored = []
    for hit in hits:
        found = math.fsum(
            unit.weight * rare
            for unit, rare in zip(units, rarities, strict=True)
            if unit.is_asked and frequency_of(unit, hit.words)
        )
        norm = 1 - _LENGTH_SHARE + _LENGTH_SHARE * hit.num_words / mean_length
        rank = sum(_bm25(units, rarities, hit.words, _SATURATION * norm))
        if hit.items:
            rank += _ITEMS_SHARE * (_items_rank(units, rarities, hit.items) - rank)
        scored.append(Relevance(rank, found / wanted if wanted else 0.0))
    return scored


def _items_rank(
    units: Sequence[QueryUnit], rarities: Sequence[float], items: Sequence[ItemWords]
) -> float:
    ranks = sorted(_item_rank(units, rarities, item) for item in items)
    return ranks[-1] + _SECOND_ITEM * sum(ranks[-2:-1])


def _item_rank(units: Sequence[QueryUnit], rarities: Sequence[float], item: ItemWords) -> float:
    norm = 1 - _ITEM_LENGTH_SHARE + _ITEM_LENGTH_SHARE * item.num_words / _ITEM_LENGTH
    scores = _bm25(units, rarities, item.words, _ITEM_SATURATION * norm)
    if not any(unit.is_asked for unit in units):
        return sum(scores)
    asked = sum(score for unit, score in zip(units, scores, strict=True) if unit.is_asked)
    # Any date helps a question for a date, but only beside what the question is about.
    return asked + min(asked, sum(scores) - asked)


def _bm25(
    units: Sequence[QueryUnit],
    rarities: Sequence[float],
    words: Mapping[str, float],
    saturation: float,
) -> list[float]:
    """What each unit is worth to a text with these words."""
    scores = []
    for unit, rare in zip(units, rarities, strict=True):
        frequency = frequency_of(unit, words)
        scores.append(unit.weight * rare * frequency / (frequency + saturation))
    return scores


def known_share(units: Sequence[QueryUnit], counts: WordCounts) -> float:
    """The share of what is asked, by weight, that occurs anywhere in the course."""
    asked = [unit for unit in units if unit.is_asked]
    known = sum(unit.weight for unit in asked if holding(unit, counts))
    unknown = sum(unit.weight * _certainty(unit) for unit in asked if not holding(unit, counts))
    return known / (known + unknown or 1.0)


def rarity(unit: QueryUnit, counts: WordCounts) -> float:
    """Inverse document frequency, of the unit's most common word that occurs at all."""
    held_by = holding(unit, counts)
    total = counts.num_passages
    rare = math.log(1 + (total - held_by + 0.5) / (held_by + 0.5))
    return rare if held_by or unit.is_number else rare * _UNKNOWN_WORD * _certainty(unit)


def _certainty(unit: QueryUnit) -> float:
    """How much it says that a unit occurs nowhere."""
    is_pair = all(len(word) == 2 and is_han(word) for word in unit.words)
    return _UNKNOWN_PAIR if is_pair else 1.0


def frequency_of(unit: QueryUnit, words: Mapping[str, float]) -> float:
    """How often a passage with these `words` has what the unit asks for."""
    if unit.prefix:
        return sum(n for word, n in words.items() if word.startswith(unit.words))
    return max(words.get(word, 0.0) for word in unit.words)


def holding(unit: QueryUnit, counts: WordCounts) -> int:
    """How many passages of the course hold the unit, by its most common word."""
    return max((counts.holding.get(word, 0) for word in unit.words), default=0)
