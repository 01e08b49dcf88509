"""`Abandonment`: the end of a run that is not to outlive its readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Abandonment:
    """Waits, once the last reader of a run has left, whether another one comes: a page that is
    reloaded, a phone that changes its network. Owned by the event loop's thread."""

    def __init__(self, grace_s: float, end: Callable[[], None]) -> None:
        """`end` is called when nobody has come for `grace_s` seconds."""
        self._grace_s = grace_s
        self._end = end
        self._timer: asyncio.TimerHandle | None = None

    def left(self) -> None:
        """The last reader has gone. Idempotent."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._grace_s, self._end)

    def stop(self) -> None:
        """Somebody reads, or the run has ended. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
