"""`Counts`: token counts that one WebSocket asks for while somebody types."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

Job = Callable[[], Awaitable[None]]
"""Tells its failures itself; raises nothing but CancelledError."""

_AT_ONCE = 2


class Counts:
    """Two at a time, and one that waits: the newest, since only the text of now matters. Owned by
    the event loop's thread."""

    def __init__(self, on_idle: Callable[[], None]) -> None:
        """`on_idle` is called whenever the last job is done."""
        self._on_idle = on_idle
        self._running: set[asyncio.Task[None]] = set()
        self._waiting: tuple[Job, Callable[[], None]] | None = None

    @property
    def is_busy(self) -> bool:
        """Something is being counted."""
        return bool(self._running)

    def put(self, job: Job, on_replaced: Callable[[], None]) -> None:
        """Does `job` as soon as fewer than two others run; calls `on_replaced` in its place when
        a newer one comes before that."""
        if len(self._running) < _AT_ONCE:
            self._start(job)
            return
        if self._waiting is not None:
            self._waiting[1]()
        self._waiting = (job, on_replaced)

    async def stop(self) -> None:
        """Gives up what runs and what waits. Leaves no task."""
        self._waiting = None
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, job: Job) -> None:
        task = asyncio.get_running_loop().create_task(self._work(job))
        self._running.add(task)
        task.add_done_callback(self._done)

    async def _work(self, job: Job) -> None:
        await job()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._start(waiting[0])
        elif not self._running:
            self._on_idle()
