"""Whether the best passages answer a question at all. Pure.

A passage must cover what is asked, by rarity, and the course must know the words. Some things
cannot be replaced by others: a numbered thing (Lab 7), and an attribute such as a phone number.
A passage without one of these that is asked for is no answer, however well the rest fits.
"""

from __future__ import annotations

from collections.abc import Sequence

from server.app.relevance import frequency_of, known_share
from server.store.analysis import QueryUnit, numbered_kind
from server.store.concepts import KEY_MARK
from server.store.passage_index import Hit, WordCounts

DEFAULT_NOT_FOUND_SCORE = 0.5
"""Chosen with `scripts/eval_retrieval.py`, which prints both kinds of mistakes."""
_MISSING = 0.25
"""What each irreplaceable thing that a passage lacks takes from its score."""
_ATTRIBUTES = frozenset(
    KEY_MARK + name
    for name in (
        *("average", "emailaddress", "failrate", "food", "lastyear", "parking", "password"),
        *("phonenumber", "salary", "scholarship", "version"),
    )
)


def found_score(asked: Sequence[QueryUnit], hit: Hit, coverage: float, counts: WordCounts) -> float:
    """How surely a passage answers what is asked, 0 to 1. `coverage` is its share of it."""
    missing = sum(
        1 for unit in asked if _is_irreplaceable(unit) and not frequency_of(unit, hit.words)
    )
    return max(0.0, (coverage + known_share(asked, counts)) / 2 - _MISSING * missing)


def _is_irreplaceable(unit: QueryUnit) -> bool:
    return unit.is_asked and (
        numbered_kind(unit) is not None or not _ATTRIBUTES.isdisjoint(unit.words)
    )
