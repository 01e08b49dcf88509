"""`FanOut`: whoever has something to write is marked, and all are flushed once per loop turn.

A step of the engine brings something for every stream. A task of its own for each would cost more
than what it writes; here it is one callback for all. While the loop is late, deltas of several
steps merge before they are flushed: so the number of writes falls when time is short."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Protocol

_SLICE_S = 0.003
"""How long one flush may hold the loop; then what else is ready has its turn."""


class Flushable(Protocol):
    """Hashed by its identity."""

    def flush(self) -> None:
        """Writes what is new. Must not raise, and must not wait."""
        ...


class Watched(Protocol):
    """Hashed by its identity."""

    def tick(self, now_s: float) -> None:
        """A look at the time, that of the loop's clock. Must not raise."""
        ...


class FanOut:
    """One for each loop. Owned by the event loop's thread."""

    def __init__(self, tick_s: float = 0.25) -> None:
        """`tick_s`: how often what is watched is told the time."""
        self._tick_s = tick_s
        self._marked: dict[Flushable, None] = {}
        self._is_scheduled = False
        self._watched: dict[Watched, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def mark(self, item: Flushable) -> None:
        """`item` is flushed in the loop's next turn: once, however often it is marked before."""
        self._marked[item] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def watch(self, item: Watched) -> None:
        """`item` is told the time every `tick_s`, until `unwatch`. One timer serves all."""
        self._watched[item] = None
        if self._timer is None:
            self._schedule_tick()

    def unwatch(self, item: Watched) -> None:
        """Ends `watch`. Idempotent. The timer ends with the last."""
        self._watched.pop(item, None)
        if not self._watched and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush(self) -> None:
        self._is_scheduled = False
        marked, self._marked = self._marked, {}
        items = iter(marked)
        until_s = perf_counter() + _SLICE_S
        try:
            for item in items:
                item.flush()
                if perf_counter() > until_s:
                    break
        finally:
            left = dict.fromkeys(items)
            if left:
                # First those that were marked first.
                left.update(self._marked)
                self._marked = left
                if not self._is_scheduled:
                    self._is_scheduled = True
                    asyncio.get_running_loop().call_soon(self._flush)

    def _schedule_tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)

    def _tick(self) -> None:
        self._schedule_tick()
        now_s = asyncio.get_running_loop().time()
        for item in list(self._watched):
            item.tick(now_s)
