"""`LoopLag`: how late the event loop runs its timers, as a metric.

Every stream of the process shares the loop, with the engine thread beside it under one
interpreter lock: what blocks either shows here first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

INTERVAL_S = 0.1


class LoopLag:
    """Tells `observe` the lag in seconds, ten times a second. Owned by the event loop's thread."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to measure, on the running loop. Idempotent."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._schedule(loop)

    def stop(self) -> None:
        """Ends measuring. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        due_s = loop.time() + INTERVAL_S
        self._timer = loop.call_at(due_s, self._tick, loop, due_s)

    def _tick(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        self._observe(max(0.0, loop.time() - due_s))
        self._schedule(loop)
