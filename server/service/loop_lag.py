"""`LoopLag`: how late the event loop runs its timers, as a metric.

Every stream of the process shares the loop, with the engine thread beside it under one
interpreter lock: what blocks either shows here first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

INTERVAL_S = 0.02
"""Fifty looks a second: twenty seconds give a 99th percentile that is no single moment."""
WINDOW_S = 30.0


class LoopLag:
    """Tells `observe` the lag in seconds, fifty times a second. Owned by the event loop's
    thread."""

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


class WorstLag:
    """The largest lag of this window and the one before: reading it changes nothing, so two who
    scrape see the same. Written by the event loop's thread; any may read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = clock()
        self._now = self._before = 0.0

    @property
    def seconds(self) -> float:
        passed_s = self._clock() - self._began_s
        if passed_s < WINDOW_S:
            return max(self._now, self._before)
        return self._now if passed_s < 2 * WINDOW_S else 0.0

    def observe(self, lag_s: float) -> None:
        passed_s = self._clock() - self._began_s
        if passed_s >= WINDOW_S:
            self._before = self._now if passed_s < 2 * WINDOW_S else 0.0
            self._now = 0.0
            self._began_s += passed_s
        self._now = max(self._now, lag_s)
