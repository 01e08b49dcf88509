"""`Retention`: conversations that are older than a course keeps them are deleted, with their
records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from sqlalchemy.exc import SQLAlchemyError

from server.store.column_types import utc_now
from server.store.conversations import Conversations
from server.store.courses import Courses

log = logging.getLogger(__name__)

_EVERY_S = 6 * 3600.0
_BATCH = 200
"""Conversations in one transaction: no writer waits long."""


class Retention:
    """Sweeps at start and every six hours. A conversation's age counts from its last use; a
    course's own number of days goes before the server's. Owned by the event loop."""

    def __init__(
        self,
        courses: Courses,
        conversations: Conversations,
        *,
        days: int | None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """`days`: what holds for courses that name no number themselves; None: they keep all."""
        self._courses = courses
        self._conversations = conversations
        self._days = days
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to sweep."""
        self._task = asyncio.get_running_loop().create_task(self._keep_on(), name="retention")

    async def stop(self) -> None:
        """Stops sweeping. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def sweep(self) -> int:
        """Deletes what is too old now; returns how many conversations. Raises SQLAlchemyError."""
        days: dict[str | None, int] = {
            course.id: course.retention_days
            for course, _ in await self._courses.all()
            if course.retention_days is not None
        }
        if self._days is not None:
            days[None] = self._days
        total, now = 0, self._clock()
        while deleted := await self._conversations.delete_older(days, now, most=_BATCH):
            total += deleted
        return total

    async def _keep_on(self) -> None:
        while True:
            try:
                if deleted := await self.sweep():
                    log.info("%d conversations were older than they are kept", deleted)
            except SQLAlchemyError as error:
                log.warning("old conversations could not be deleted: %s", error)
            await asyncio.sleep(_EVERY_S)
