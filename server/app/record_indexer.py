"""`RecordIndexer`: makes ended answers findable by their words, behind everybody's back.

The words of a long answer cost milliseconds, so they are made in a thread, some seconds after the
answer's end, and never on its way."""

from __future__ import annotations

import asyncio
import logging

from sqlalchemy.exc import SQLAlchemyError

from server.store.analysis import index_words
from server.store.records import Records

log = logging.getLogger(__name__)

_BATCH = 20
_PAUSE_S = 2.0
"""Between two batches: answers that end together share a transaction."""
_MOST_CHARS = 100_000
"""Characters of one record whose words are kept."""


class RecordIndexer:
    """Owned by the event loop. `add` is told of each answer that has ended; what a process before
    left undone is found at `start`."""

    def __init__(self, records: Records, *, pause_s: float = _PAUSE_S) -> None:
        self._records = records
        self._pause_s = pause_s
        self._waiting: dict[str, None] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, answer_id: str) -> None:
        """An answer has ended, or has gone on and ended again."""
        self._waiting[answer_id] = None
        self._news.set()

    async def start(self) -> None:
        """Begins to index. Raises SQLAlchemyError."""
        for answer_id in await self._records.without_words():
            self.add(answer_id)
        self._task = asyncio.get_running_loop().create_task(self._keep_on(), name="record index")

    async def stop(self) -> None:
        """Stops; what waits is found again at the next start. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def index_waiting(self) -> None:
        """Indexes all that waits now. Raises SQLAlchemyError; then it waits on."""
        while batch := list(self._waiting)[:_BATCH]:
            # Out of the line first: one that goes on meanwhile is put into it again.
            for answer_id in batch:
                del self._waiting[answer_id]
            is_done = False
            try:
                texts = await self._records.texts(batch)
                words = await asyncio.to_thread(_words, texts)
                await self._records.put_words(words)
                is_done = True
            finally:
                if not is_done:
                    self._waiting.update(dict.fromkeys(batch))

    async def _keep_on(self) -> None:
        is_failing = False
        while True:
            await self._news.wait()
            await asyncio.sleep(self._pause_s)
            self._news.clear()
            try:
                await self.index_waiting()
                is_failing = False
            except SQLAlchemyError as error:
                self._news.set()
                if not is_failing:  # told once, not every other second
                    is_failing = True
                    log.warning("records could not be indexed; it is tried again: %s", error)


def _words(texts: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    return [
        (answer_id, course_id, " ".join(dict.fromkeys(index_words(text[:_MOST_CHARS]))))
        for answer_id, course_id, text in texts
    ]
