"""`PassageVectors`: passages found by meaning, with an embedding model of the operator's choice.

Vectors are made in the background, once a passage, and kept in the database; a search compares a
question's with all of its course's. The model is used only for questions in languages that it
knows, which is tried when it is loaded: many models take every Chinese text for the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import anyio.to_thread
import numpy as np
import numpy.typing as npt
from sqlalchemy import exists, func, select
from sqlalchemy.exc import SQLAlchemyError

from server.app.embedding_probes import PROBES
from server.store.analysis import is_han
from server.store.database import Database
from server.store.schema import PassageRow, PassageVector

log = logging.getLogger(__name__)

_BATCH = 16
_EVERY_S = 5.0
"""How often is looked for passages without a vector."""
_KNOWN_SHARE = 0.8
"""Of the pairs of a language, how many must find each other."""

Vectors: TypeAlias = npt.NDArray[np.float32]


class Embedder(Protocol):
    """Makes vectors of texts."""

    @property
    def name(self) -> str:
        """What tells its vectors from other models', at most 64 characters."""
        ...

    def encode(self, texts: Sequence[str]) -> Vectors:
        """A row of unit length for each text. Slow: called in a thread, one call at a time."""
        ...


class SentenceEmbedder:
    """A folder of a sentence-transformers model. Used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        """Loads it. Raises ModuleNotFoundError without the extra, OSError or ValueError for a
        folder that holds no such model."""
        from sentence_transformers import SentenceTransformer

        self._model: Any = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        self.name = folder.resolve().name[:64]

    def encode(self, texts: Sequence[str]) -> Vectors:
        vectors = self._model.encode(
            list(texts), batch_size=_BATCH, normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)


class CrossReranker:
    """A folder of a cross-encoder. Used by one question at a time."""

    def __init__(self, folder: Path) -> None:
        """Loads it; raises as SentenceEmbedder does."""
        from sentence_transformers import CrossEncoder

        self._model: Any = CrossEncoder(str(folder), device="cpu", local_files_only=True)
        self._turn = asyncio.Lock()

    async def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """How well each text answers the question."""
        pairs = [(question, text) for text in texts]
        async with self._turn:
            found = await anyio.to_thread.run_sync(self._model.predict, pairs)
        return [float(score) for score in found]


@dataclass(frozen=True, slots=True)
class _CourseVectors:
    ids: tuple[str, ...]
    vectors: Vectors
    stamp: tuple[int, str]


class PassageVectors:
    """Implements `SemanticSearch`. Owned by the event loop; between `start` and `stop` a task makes
    the vectors that are missing."""

    def __init__(self, database: Database, embedder: Embedder, *, weight: float) -> None:
        self.weight = weight
        self._database = database
        self._embedder = embedder
        self._turn = asyncio.Lock()
        self._courses: dict[str, _CourseVectors] = {}
        self._languages: frozenset[str] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Makes vectors from now on. The store must be open."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Ends that; a batch that is being made is lost. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                while await self.make_some():
                    pass
            except SQLAlchemyError:
                log.exception("vectors of passages could not be stored; trying again")
            await asyncio.sleep(_EVERY_S)

    async def make_some(self) -> int:
        """Makes vectors of some passages that have none; how many."""
        model = self._embedder.name
        has_vector = exists().where(
            PassageVector.passage_id == PassageRow.id, PassageVector.model == model
        )
        async with self._database.session() as session:
            rows = list(
                await session.execute(
                    select(PassageRow.id, PassageRow.heading, PassageRow.text)
                    .where(~has_vector)
                    .order_by(PassageRow.id)
                    .limit(_BATCH)
                )
            )
        if not rows:
            return 0
        vectors = await self._encode([f"{heading}\n{text}" for _, heading, text in rows])
        async with self._database.transaction() as session:
            # A material may have been deleted or read anew meanwhile.
            still = set(
                await session.scalars(
                    select(PassageRow.id).where(PassageRow.id.in_([row.id for row in rows]))
                )
            )
            session.add_all(
                PassageVector(passage_id=row.id, model=model, vector=vector.astype("<f2").tobytes())
                for row, vector in zip(rows, vectors, strict=True)
                if row.id in still
            )
        return len(rows)

    async def nearest(
        self, course_id: str, question: str, *, limit: int
    ) -> list[tuple[str, float]]:
        """See `SemanticSearch`."""
        if self._languages is None:
            self._languages = await self._known_languages()
        if ("zh" if is_han(question) else "en") not in self._languages:
            return []
        course = await self._vectors_of(course_id)
        if not course.ids:
            return []
        (vector,) = await self._encode([question])
        similarities = course.vectors @ vector
        order = np.argsort(-similarities, kind="stable")[:limit]
        return [(course.ids[n], float(similarities[n])) for n in order]

    async def _encode(self, texts: list[str]) -> Vectors:
        async with self._turn:
            return await anyio.to_thread.run_sync(self._embedder.encode, texts)

    async def _known_languages(self) -> frozenset[str]:
        """Those in which questions find their answers among others."""
        known = set()
        for language, pairs in PROBES.items():
            questions = await self._encode([question for question, _ in pairs])
            answers = await self._encode([answer for _, answer in pairs])
            right = (questions @ answers.T).argmax(axis=1) == np.arange(len(pairs))
            if right.mean() >= _KNOWN_SHARE:
                known.add(language)
        log.info("the embedding model is used for questions in: %s", ", ".join(sorted(known)))
        return frozenset(known)

    async def _vectors_of(self, course_id: str) -> _CourseVectors:
        mine = (
            PassageRow.course_id == course_id,
            PassageVector.model == self._embedder.name,
        )
        joined = PassageRow.id == PassageVector.passage_id
        async with self._database.session() as session:
            count, newest = (
                await session.execute(
                    select(func.count(), func.max(PassageVector.passage_id))
                    .select_from(PassageVector)
                    .join(PassageRow, joined)
                    .where(*mine)
                )
            ).one()
            stamp = (count, newest or "")
            kept = self._courses.get(course_id)
            if kept is not None and kept.stamp == stamp:
                return kept
            rows = list(
                await session.execute(
                    select(PassageVector.passage_id, PassageVector.vector)
                    .join(PassageRow, joined)
                    .where(*mine)
                )
            )
        data = b"".join(vector for _, vector in rows)
        vectors = np.frombuffer(data, dtype="<f2").astype(np.float32)
        shaped = vectors.reshape(len(rows), -1) if rows else vectors.reshape(0, 0)
        found = _CourseVectors(tuple(id for id, _ in rows), shaped, stamp)
        self._courses[course_id] = found
        return found
