"""What a search has found, put in order: by words, by the model, by meaning, by a reranker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from server.app.follow_ups import Asked
from server.app.fusion import Judge, Reranker, fuse
from server.app.materials.document import NOWHERE, Place
from server.app.materials.tables import spell_out_tables
from server.app.not_found import found_score
from server.app.relevance import score_hits
from server.store.passage_index import Hit, WordCounts
from server.store.schema import Material, PassageRow

_OTHER_LANGUAGE = 0.85
"""What a passage in the other language is worth. Both may hold the words (Lab 4, KV cache), but
a reader wants an answer from a text in the language of the question."""
_SAME_MATERIAL = 1.15
"""What a follow-up's passage is worth that comes from a material of the answer before."""
_NUM_RERANKED = 20
_LEAST_JUDGED = 0.6
"""The model is asked about passages that rank at or above this share of the best one."""
_LIKELIHOOD_WORTH = 0.1
"""What a nat of the question's likelihood counts beside a rank by words: chosen with
`scripts/eval_retrieval.py`, as the share above."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a material. `score`: how surely it answers, 0 to 1. `heading` is its whole path,
    `place` where in the file it stands."""

    id: str
    material_id: str
    title: str
    locator: str
    text: str
    score: float
    num_tokens: int
    place: Place = NOWHERE
    heading: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage and what speaks for it. `rank` orders candidates, higher first; the places count
    from 1 and are None where a search did not find it. `likelihood`: of the question after the
    passage, in nats, by the model; None where it was not asked."""

    passage: Passage
    hit: Hit
    rank: float
    coverage: float
    is_hidden: bool
    lexical_place: int | None
    semantic_place: int | None = None
    likelihood: float | None = None


@dataclass(frozen=True, slots=True)
class LoadedPassage:
    """A passage's row, its material's title, and whether students do not see the material."""

    row: PassageRow
    title: str
    is_hidden: bool


async def load_passages(
    session: AsyncSession,
    course_id: str,
    hits: Sequence[Hit],
    *,
    without: Sequence[str],
    now: datetime,
) -> dict[str, LoadedPassage]:
    """The passages of `hits` by id, but for those of the materials `without`. What becomes
    visible after `now` is hidden."""
    rows = await session.execute(
        select(PassageRow, Material.title, Material.is_hidden, Material.visible_from)
        .join(Material, Material.id == PassageRow.material_id)
        .where(
            PassageRow.course_id == course_id, PassageRow.id.in_([hit.passage_id for hit in hits])
        )
    )
    hidden = set(without)
    return {
        row.id: LoadedPassage(row, title, is_hidden or (visible_from or now) > now)
        for row, title, is_hidden, visible_from in rows
        if row.material_id not in hidden
    }


def ranked(
    asked: Asked,
    hits: Sequence[Hit],
    counts: WordCounts,
    loaded: Mapping[str, LoadedPassage],
    *,
    is_han_question: bool,
    same_materials: Sequence[str],
) -> list[Candidate]:
    """The hits as candidates, best first, by words alone."""
    ranks = score_hits(asked.units, hits, counts)
    covered = score_hits(asked.decisive, hits, counts)
    candidates = []
    for hit, rank, cover in zip(hits, ranks, covered, strict=True):
        found = loaded[hit.passage_id]
        row = found.row
        worth = 1.0 if (row.language == "zh") == is_han_question else _OTHER_LANGUAGE
        if row.material_id in same_materials:
            worth *= _SAME_MATERIAL
        passage = Passage(
            row.id,
            row.material_id,
            found.title,
            row.locator,
            row.text,
            round(found_score(asked.decisive, hit, cover.coverage, counts), 4),
            row.num_tokens,
            Place(**row.place) if row.place else NOWHERE,
            row.heading,
        )
        candidates.append(
            Candidate(passage, hit, rank.rank * worth, cover.coverage, found.is_hidden, None)
        )
    candidates.sort(key=lambda candidate: -candidate.rank)
    return [
        replace(candidate, lexical_place=place if candidate.hit.words else None)
        for place, candidate in enumerate(candidates, start=1)
    ]


async def judged(
    candidates: Sequence[Candidate],
    question: str,
    judge: Judge,
    *,
    limit: int,
    user: str,
    course_id: str,
    since: float,
) -> list[Candidate]:
    """The candidates with those that come near the best in the order of rank and likelihood
    together, with the ranks that these places had. At most `limit` are judged; `since` as for a
    `Judge`."""
    least = candidates[0].rank * _LEAST_JUDGED if candidates else 0.0
    near = [candidate for candidate in candidates[:limit] if candidate.rank >= least]
    if len(near) < 2:
        return list(candidates)
    texts = [_as_read(candidate.passage) for candidate in near]
    likelihoods = await judge.likelihoods(
        question, texts, user=user, course_id=course_id, since=since
    )
    if likelihoods is None:
        return list(candidates)
    heard = [
        replace(candidate, likelihood=likelihood)
        for candidate, likelihood in zip(near, likelihoods, strict=True)
    ]
    order = sorted(heard, key=lambda c: -(c.rank + _LIKELIHOOD_WORTH * (c.likelihood or 0.0)))
    return [*_in_places_of(near, order), *candidates[len(near) :]]


def _as_read(passage: Passage) -> str:
    heading = f"{passage.title} › {passage.heading}" if passage.heading else passage.title
    return f"{heading}\n{spell_out_tables(passage.text)}"


def _in_places_of(places: Sequence[Candidate], order: Sequence[Candidate]) -> list[Candidate]:
    """`order` with the ranks of `places`."""
    return [
        replace(candidate, rank=place.rank) for place, candidate in zip(places, order, strict=True)
    ]


def fused(
    candidates: Sequence[Candidate], semantic: Sequence[tuple[str, float]], weight: float
) -> list[Candidate]:
    """The candidates in the order of both searches."""
    places = {id: place for place, (id, _) in enumerate(semantic, start=1)}
    lexical = [c.passage.id for c in candidates if c.lexical_place is not None]
    scores = fuse(lexical, list(places), weight)
    merged = [
        replace(
            candidate,
            rank=scores.get(candidate.passage.id, 0.0),
            semantic_place=places.get(candidate.passage.id),
        )
        for candidate in candidates
    ]
    return sorted(merged, key=lambda candidate: -candidate.rank)


async def reranked(
    candidates: Sequence[Candidate], question: str, reranker: Reranker
) -> list[Candidate]:
    """The first candidates in the order of the reranker, with the ranks that these places had."""
    first = candidates[:_NUM_RERANKED]
    texts = [f"{c.passage.heading}\n{c.passage.text}" for c in first]
    scores = await reranker.scores(question, texts)
    order = sorted(zip(scores, first, strict=True), key=lambda pair: -pair[0])
    moved = _in_places_of(first, [candidate for _, candidate in order])
    return [*moved, *candidates[_NUM_RERANKED:]]
