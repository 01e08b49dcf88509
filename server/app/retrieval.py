"""`Retriever`: the passages of a course that answer a question, or word that there are none."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import anyio.to_thread
from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from server.app.calendar import CourseCalendar, today_in
from server.app.candidates import (
    Candidate,
    LoadedPassage,
    Passage,
    fused,
    judged,
    load_passages,
    ranked,
    reranked,
)
from server.app.explain import (
    Explained,
    ExplainedPart,
    ExplainedPassage,
    explain_units,
    matches,
)
from server.app.follow_ups import Asked, Previous, what_is_asked
from server.app.fusion import Judge, Reranker, SemanticSearch
from server.app.not_found import DEFAULT_NOT_FOUND_SCORE, found_score
from server.app.part_search import PartFound, search_parts
from server.app.relevance import score_hits
from server.store.analysis import is_han
from server.store.database import Database
from server.store.passage_index import Hit, WordCounts, passage_index
from server.store.schema import Course, Material, MaterialState

__all__ = ["DEFAULT_NOT_FOUND_SCORE", "Passage", "Previous", "Retrieved", "Retriever", "Viewer"]

_NUM_CANDIDATES = 100
_LEAST_RANK = 0.85
"""A passage that ranks under this share of the best one is left out: a small model takes its
facts from any passage it sees, the wrong ones as well."""
DEFAULT_NUM_JUDGED = 8
_NUM_DECIDING = 3
_PART_MARGIN = 0.15
"""By how much a part of a question that is not found as a whole must be surer than a question: a
few words are soon found somewhere, and the model would then make up what they ask for. Of the
evaluation's questions 0.85 of the answerable reach that much alone, and 0.40 of the others."""
_NUM_AT_ONCE = 20
"""Candidates that are scored without giving the work to a thread."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """For whom is searched. `sees_hidden`: teachers find hidden materials, and those that become
    visible later. `now` is the present moment (aware); None means the clock's."""

    user: str
    sees_hidden: bool = False
    now: datetime | None = None

    @property
    def moment(self) -> datetime:
        return self.now or datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Passages, best first. `is_found` is False when even the best does not fit the question:
    then they are only the nearest ones. `score`: the best one's, by which that was decided.
    `missing_parts`: of a question of several parts, those for which nothing is found, while
    something is for `found_question`, the others."""

    passages: tuple[Passage, ...]
    is_found: bool
    score: float = 0.0
    missing_parts: tuple[str, ...] = ()
    found_question: str | None = None


@dataclass(frozen=True, slots=True)
class _Hearing:
    """The judge of one question, all of its parts, since when (`time.monotonic`)."""

    judge: Judge
    since: float


@dataclass(frozen=True, slots=True)
class _Found:
    """`score`: the best passage's before the model was asked, by which it is decided whether
    anything is found; None where it was not asked."""

    asked: Asked
    counts: WordCounts
    candidates: tuple[Candidate, ...]
    score: float | None = None


class Retriever:
    """Searches the store. Safe to use for many questions at once."""

    def __init__(
        self,
        database: Database,
        *,
        not_found_score: float = DEFAULT_NOT_FOUND_SCORE,
        judge: Judge | None = None,
        num_judged: int = DEFAULT_NUM_JUDGED,
        semantic: SemanticSearch | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        """A question is found when one of its best passages scores `not_found_score` or more.
        `judge` is asked about the first `num_judged` where words do not decide, `semantic` finds
        by meaning as well, `reranker` orders the best anew."""
        self._database = database
        self._index = passage_index(database)
        self._not_found_score = not_found_score
        self._judge = judge
        self._num_judged = num_judged
        self._semantic = semantic
        self._reranker = reranker

    async def retrieve(
        self,
        course_id: str,
        question: str,
        *,
        previous: Previous | None = None,
        viewer: Viewer | None = None,
        limit: int = 8,
        asks_judge: bool = True,
    ) -> Retrieved:
        """Up to `limit` passages for `question`: the best and those that come near it, or, when
        nothing is found, just the nearest. A follow-up ("And on Thursday?") is helped by the
        question before it, which counts for less. Without a viewer: as a guest sees it.
        `asks_judge` False: at once. What is not found as a whole is searched in its parts."""
        hearing = self._hearing() if asks_judge else None
        viewer = viewer or Viewer("")
        found = await self._find(course_id, question, previous, viewer, hearing)
        good, score = self._decide(found, limit)
        if score >= self._not_found_score:
            return Retrieved(tuple(c.passage for c in good), is_found=True, score=score)

        async def search(part: str, before: Previous | None) -> PartFound:
            return self._as_part(await self._find(course_id, part, before, viewer, hearing), limit)

        in_parts = await search_parts(question, previous, search, limit=limit)
        if in_parts is None:
            nearest = tuple(candidate.passage for candidate in found.candidates[:limit])
            return Retrieved(nearest, is_found=False, score=score)
        return Retrieved(
            in_parts.passages,
            is_found=True,
            score=in_parts.score,
            missing_parts=in_parts.missing,
            found_question=in_parts.asked,
        )

    async def explain(
        self,
        course_id: str,
        question: str,
        *,
        previous: Previous | None = None,
        viewer: Viewer,
        limit: int = 20,
        num_given: int = 8,
    ) -> Explained:
        """`retrieve` with its reasons: up to `limit` passages, those marked that it gives when
        asked for `num_given`. What is not found as a whole has its parts explained, too."""
        hearing = self._hearing()
        found = await self._find(course_id, question, previous, viewer, hearing)
        good, score = self._decide(found, num_given)
        is_found = score >= self._not_found_score
        given = {candidate.passage.id for candidate in good} if is_found else set()
        whole = _explained(found, limit, score, self._not_found_score, given)
        if is_found:
            return whole
        by_part: dict[str, _Found] = {}

        async def search(part: str, before: Previous | None) -> PartFound:
            by_part[part] = await self._find(course_id, part, before, viewer, hearing)
            return self._as_part(by_part[part], num_given)

        in_parts = await search_parts(question, previous, search, limit=num_given)
        if in_parts is None:
            return whole
        given = {passage.id for passage in in_parts.passages}
        parts = tuple(
            ExplainedPart(
                part,
                _explained(by_part[part], limit, result.score, self._least_of_part, given)
                if result
                else None,
            )
            for part, result in in_parts.parts
        )
        return replace(whole, parts=parts)

    def _hearing(self) -> _Hearing | None:
        return None if self._judge is None else _Hearing(self._judge, time.monotonic())

    def _as_part(self, found: _Found, limit: int) -> PartFound:
        """What was found for a part of a question."""
        good, score = self._decide(found, limit)
        score = min(score, _own_score(found, good))
        return PartFound(tuple(c.passage for c in good), score >= self._least_of_part, score)

    @property
    def _least_of_part(self) -> float:
        return max(self._not_found_score, min(1.0, self._not_found_score + _PART_MARGIN))

    def _decide(self, found: _Found, limit: int) -> tuple[tuple[Candidate, ...], float]:
        """The best candidates and those that come near them, and the best score of these."""
        candidates = found.candidates[:limit]
        least = candidates[0].rank * _LEAST_RANK if candidates else 0.0
        good = tuple(candidate for candidate in candidates if candidate.rank >= least)
        if found.score is not None:
            return good, found.score
        return good, max((c.passage.score for c in good[:_NUM_DECIDING]), default=0.0)

    async def _find(
        self,
        course_id: str,
        question: str,
        previous: Previous | None,
        viewer: Viewer,
        hearing: _Hearing | None,
    ) -> _Found:
        semantic: Sequence[tuple[str, float]] = ()
        if self._semantic is not None:
            both = f"{previous.question}\n{question}" if previous else question
            semantic = await self._semantic.nearest(course_id, both, limit=_NUM_CANDIDATES)
        async with self._database.session() as session:
            calendar = await _calendar(session, course_id, viewer)
            before = previous.question if previous else None
            # In a thread: what is asked may be long, and pasted.
            asked = await anyio.to_thread.run_sync(what_is_asked, question, before, calendar)
            hidden = await _hidden(session, course_id, viewer)
            hits = await self._index.search(
                session, course_id, asked.units, limit=_NUM_CANDIDATES, without=hidden
            )
            counts = await self._index.count(session, course_id, asked.units)
            known = {hit.passage_id for hit in hits}
            hits += [Hit(id, {}, 0) for id, _ in semantic if id not in known]
            loaded = await load_passages(
                session, course_id, hits, without=hidden, now=viewer.moment
            )
        hits = [hit for hit in hits if hit.passage_id in loaded]
        bonus = previous.material_ids if previous and asked.is_follow_up else ()
        candidates = await self._scored(asked, hits, counts, loaded, question, bonus)
        found = _Found(asked, counts, tuple(candidates))
        if hearing is not None:
            _, score = self._decide(found, len(candidates))
            leads = f"{previous.question} " if previous and asked.is_follow_up else ""
            candidates = await judged(
                candidates,
                leads + question,
                hearing.judge,
                limit=self._num_judged,
                user=viewer.user,
                course_id=course_id,
                since=hearing.since,
            )
            found = replace(found, candidates=tuple(candidates), score=score)
        if semantic and self._semantic is not None:
            candidates = fused(candidates, semantic, self._semantic.weight)
        if self._reranker is not None:
            candidates = await reranked(candidates, question, self._reranker)
        return replace(found, candidates=tuple(candidates))

    async def _scored(
        self,
        asked: Asked,
        hits: Sequence[Hit],
        counts: WordCounts,
        loaded: Mapping[str, LoadedPassage],
        question: str,
        bonus: Sequence[str],
    ) -> list[Candidate]:
        score = partial(
            ranked,
            asked,
            hits,
            counts,
            loaded,
            is_han_question=is_han(question),
            same_materials=bonus,
        )
        # Tens of milliseconds of Python: answers must go on being delivered meanwhile.
        return await anyio.to_thread.run_sync(score) if len(hits) > _NUM_AT_ONCE else score()


def _explained(
    found: _Found, limit: int, score: float, threshold: float, given: Container[str]
) -> Explained:
    """The reasons for what was found."""
    asked = found.asked
    return Explained(
        score >= threshold,
        score,
        threshold,
        asked.is_follow_up,
        explain_units(asked.own, asked.leaned, found.counts),
        tuple(
            ExplainedPassage(
                candidate.passage,
                round(candidate.rank, 4),
                round(candidate.coverage, 4),
                matches(asked.units, candidate.hit),
                candidate.lexical_place,
                candidate.semantic_place,
                candidate.likelihood,
                candidate.is_hidden,
                candidate.passage.id in given,
            )
            for candidate in found.candidates[:limit]
        ),
    )


def _own_score(found: _Found, good: Sequence[Candidate]) -> float:
    """The best score of what a part asks for itself: a passage that has only what it takes over
    from the part before answers that one."""
    asked = found.asked
    if not asked.is_follow_up or not any(unit.is_asked for unit in asked.own):
        return 1.0
    hits = [candidate.hit for candidate in good[:_NUM_DECIDING]]
    covered = score_hits(asked.own, hits, found.counts)
    return max(
        (
            found_score(asked.own, hit, cover.coverage, found.counts)
            for hit, cover in zip(hits, covered, strict=True)
        ),
        default=0.0,
    )


async def _calendar(session: AsyncSession, course_id: str, viewer: Viewer) -> CourseCalendar:
    row = (
        await session.execute(
            select(Course.starts_on, Course.num_weeks, Course.timezone).where(
                Course.id == course_id
            )
        )
    ).one_or_none()
    starts_on, num_weeks, timezone = row or (None, None, None)
    return CourseCalendar(today_in(timezone, viewer.moment), starts_on, num_weeks)


async def _hidden(session: AsyncSession, course_id: str, viewer: Viewer) -> list[str]:
    """Materials that this viewer must not find."""
    is_hidden = Material.state != MaterialState.READY
    if not viewer.sees_hidden:
        is_hidden = or_(is_hidden, Material.is_hidden, Material.visible_from > viewer.moment)
    return list(
        await session.scalars(select(Material.id).where(Material.course_id == course_id, is_hidden))
    )
