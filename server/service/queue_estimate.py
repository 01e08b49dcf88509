"""`QueueEstimate`: how long a place in the queue is likely to take."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

_MAX_ENDS = 512
_MEMORY_S = 60.0
"""Ends that lie so much waiting time back are forgotten, but for the least number."""
_MIN_ENDS = 4


class QueuePlace(NamedTuple):
    """Where a request waits: `position` 1 is next; `eta_ms` None: not known yet."""

    position: int
    eta_ms: int | None


class QueueEstimate:
    """The rate at which places become free, measured at the ends of answers. Owned by the event
    loop's thread; times are of one monotonic clock.

    Only time in which somebody waits counts: at other times the rate is that of the arrivals. Not
    a mean of gaps: many answers end in one step, and then none for a while."""

    def __init__(self) -> None:
        self._waiting_since_s: float | None = None
        self._waited_s = 0.0
        self._ends: deque[float] = deque(maxlen=_MAX_ENDS)
        """By the clock that stands still while nobody waits."""

    def observe(self, now_s: float, *, is_waiting: bool) -> None:
        """Whether somebody waits from now on."""
        if self._waiting_since_s is not None:
            self._waited_s += max(0.0, now_s - self._waiting_since_s)
        self._waiting_since_s = now_s if is_waiting else None

    def ended(self, now_s: float, *, is_waiting: bool) -> None:
        """An answer has ended."""
        was_waiting = self._waiting_since_s is not None
        self.observe(now_s, is_waiting=is_waiting)
        if not was_waiting:
            return
        self._ends.append(self._waited_s)
        while len(self._ends) > _MIN_ENDS and self._waited_s - self._ends[0] > _MEMORY_S:
            self._ends.popleft()

    def wait_s(self, num_ends: int) -> float | None:
        """How long `num_ends` ends are likely to take; None while that is not known."""
        if len(self._ends) < _MIN_ENDS:
            return None
        span_s = self._waited_s - self._ends[0]
        return num_ends * span_s / (len(self._ends) - 1) if span_s > 0 else None
