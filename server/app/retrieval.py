"""`Retriever`: the passages of a course that answer a question, or word that there are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from server.app.relevance import Relevance, score_hits
from server.store.analysis import QueryUnit, is_han, query_units
from server.store.database import Database
from server.store.schema import Material, PassageRow
from server.store.search import Hit, count_words, search_passages

DEFAULT_NOT_FOUND_SCORE = 0.45
"""Chosen with `scripts/eval_answers.py --retrieval-only`, which prints both kinds of mistakes."""

_NUM_CANDIDATES = 40
_MAX_QUESTION_CHARS = 2000
_MAX_UNITS = 64
_PREVIOUS_WEIGHT = 0.3
_FOLLOW_UP_WEIGHT = 2.0
"""A question whose units weigh less than this together may lean on the one before it."""
_OTHER_LANGUAGE = 0.6
"""What a passage in the other language is worth. Both may hold the words (Lab 4, KV cache), but
a reader wants an answer from a text in the language of the question."""

_LEAST_RANK = 0.85
"""A passage that ranks under this share of the best one is left out: a small model takes its
facts from any passage it sees, the wrong ones as well."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a material. `score`: how much of what was asked it covers, 0 to 1."""

    id: str
    material_id: str
    title: str
    locator: str
    text: str
    score: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Passages, best first. `is_found` is False when even the best does not fit the question:
    then they are only the nearest ones. `score`: what that was decided by."""

    passages: tuple[Passage, ...]
    is_found: bool
    score: float = 0.0


class Retriever:
    """Searches the store. Safe to use for many questions at once."""

    def __init__(
        self, database: Database, *, not_found_score: float = DEFAULT_NOT_FOUND_SCORE
    ) -> None:
        """A question is found when one of its best passages covers `not_found_score` of it."""
        self._database = database
        self._not_found_score = not_found_score

    async def retrieve(
        self, course_id: str, question: str, *, previous_question: str | None = None, limit: int = 8
    ) -> Retrieved:
        """Up to `limit` passages for `question`: the best and those that come near it, or, when
        nothing is found, just the nearest. A follow-up ("And on Thursday?") is helped by the
        question before it, which counts for less."""
        units = _bounded(question)
        asked = units + _from_previous(previous_question, units)
        async with self._database.session() as session:
            hits = await search_passages(session, course_id, asked, limit=_NUM_CANDIDATES)
            if not hits:
                return Retrieved((), is_found=False)
            counts = await count_words(session, course_id, asked)
            ranks = score_hits(asked, hits, counts)
            # A follow-up is found when it and what it leans on are; any other question must be
            # covered for itself.
            is_follow_up = sum(unit.weight for unit in units) < _FOLLOW_UP_WEIGHT
            coverage = ranks if is_follow_up else score_hits(units, hits, counts)
            ranked = await _load(session, hits, ranks, coverage, is_han(question))
        nearest = tuple(passage for _, passage in ranked[:limit])
        least = ranked[0][0] * _LEAST_RANK if ranked else 0.0
        good = tuple(passage for rank, passage in ranked[:limit] if rank >= least)
        score = max((passage.score for passage in good[:3]), default=0.0)
        is_found = score >= self._not_found_score
        return Retrieved(good if is_found else nearest, is_found, score)


def _bounded(question: str) -> list[QueryUnit]:
    """The units of a question; of a very long one those of its beginning and end."""
    if len(question) > _MAX_QUESTION_CHARS:
        half = _MAX_QUESTION_CHARS // 2
        question = question[:half] + "\n" + question[-half:]
    return query_units(question)[:_MAX_UNITS]


def _from_previous(previous: str | None, units: Sequence[QueryUnit]) -> list[QueryUnit]:
    if not previous:
        return []
    known = {unit.words for unit in units}
    return [
        replace(unit, weight=unit.weight * _PREVIOUS_WEIGHT)
        for unit in _bounded(previous)
        if unit.words not in known
    ]


async def _load(
    session: AsyncSession,
    hits: Sequence[Hit],
    ranks: Sequence[Relevance],
    coverage: Sequence[Relevance],
    is_han_question: bool,
) -> list[tuple[float, Passage]]:
    """Rank and text of each hit, best first."""
    rows = await session.execute(
        select(PassageRow, Material.title)
        .join(Material, Material.id == PassageRow.material_id)
        .where(PassageRow.id.in_([hit.passage_id for hit in hits]))
    )
    found = {row.id: (row, title) for row, title in rows}
    scored: list[tuple[float, Passage]] = []
    for hit, rank, covered in zip(hits, ranks, coverage, strict=True):
        if hit.passage_id not in found:
            continue
        row, title = found[hit.passage_id]
        passage = Passage(
            row.id,
            row.material_id,
            title,
            row.locator,
            row.text,
            round(covered.coverage, 4),
            row.num_tokens,
        )
        same_language = is_han(row.text) == is_han_question
        scored.append((rank.rank * (1.0 if same_language else _OTHER_LANGUAGE), passage))
    scored.sort(key=lambda pair: -pair[0])
    return scored
