"""`Lane`: jobs of one WebSocket that may wait for others, done in order beside its reading."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from server.service.errors import RateLimitedError

Job = Callable[[], Awaitable[None]]
"""Tells its failures itself; raises nothing but CancelledError."""


class Lane:
    """One job after another; the first one starts a task, the last one ends it. Owned by the
    event loop's thread."""

    def __init__(self, max_waiting: int, on_idle: Callable[[], None]) -> None:
        """`on_idle` is called whenever the last job is done."""
        self._max_waiting = max_waiting
        self._on_idle = on_idle
        self._waiting: deque[Job] = deque()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Something is being done, or waits."""
        return self._task is not None

    def put(self, job: Job) -> None:
        """Does `job` after those put before. Raises RateLimitedError when too many wait."""
        if len(self._waiting) >= self._max_waiting:
            raise RateLimitedError(
                f"{self._max_waiting} messages of this connection wait to be handled already.",
                retry_after_ms=1000,
            )
        self._waiting.append(job)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def finish(self, timeout_s: float) -> None:
        """Returns when every job was done; after `timeout_s`, or when cancelled, the rest is
        given up. Leaves no task."""
        task = self._task
        if task is None:
            return
        try:
            await asyncio.wait([task], timeout=timeout_s)
        finally:
            self._waiting.clear()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._waiting.popleft()()
        finally:
            self._task = None
            self._on_idle()
