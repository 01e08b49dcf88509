"""`Throttle`: so many tries a minute, for each who tries."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from server.service.errors import RateLimitedError

_MAX_KEYS = 10_000


class Throttle:
    """Owned by the event loop. A try counts from when it begins, so that many at once are no way
    around it; one that turned out well is taken back."""

    def __init__(
        self,
        limit: int,
        *,
        window_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._window_s = window_s
        self._clock = clock
        self._tries: dict[str, deque[float]] = {}

    def enter(self, key: str) -> None:
        """Counts a try. Raises RateLimitedError, which counts nothing, for one too many."""
        now = self._clock()
        self._forget(now)
        tries = self._tries.setdefault(key, deque())
        self._drop_old(tries, now)
        if len(tries) >= self._limit:
            wait_s = tries[0] + self._window_s - now
            raise RateLimitedError(
                f"Too many tries; wait {max(1, round(wait_s))} seconds.",
                message_zh=f"尝试次数过多，请等待 {max(1, round(wait_s))} 秒。",
                retry_after_ms=max(1, round(wait_s * 1000)),
                reason="too_many_tries",
            )
        tries.append(now)

    def take_back(self, key: str) -> None:
        """The latest try was no failure."""
        tries = self._tries.get(key)
        if tries:
            tries.pop()
            if not tries:
                del self._tries[key]

    def _drop_old(self, tries: deque[float], now: float) -> None:
        while tries and now - tries[0] >= self._window_s:
            tries.popleft()

    def _forget(self, now: float) -> None:
        """Keeps memory bounded, whatever names are tried."""
        if len(self._tries) < _MAX_KEYS:
            return
        for tries in self._tries.values():
            self._drop_old(tries, now)
        self._tries = {key: tries for key, tries in self._tries.items() if tries}
        while len(self._tries) >= _MAX_KEYS:  # who has waited longest is forgotten first
            del self._tries[next(iter(self._tries))]
