"""`MessageRate`: how many messages one WebSocket may send."""

from __future__ import annotations


class MessageRate:
    """A token bucket that holds two seconds' messages. Owned by the event loop's thread; times are
    in seconds, of one monotonic clock."""

    def __init__(self, per_s: float, now_s: float) -> None:
        self._per_s = per_s
        self._burst = max(1.0, 2 * per_s)
        self._left = self._burst
        self._updated_s = now_s
        self._num_refused = 0

    @property
    def is_flooded(self) -> bool:
        """More messages were refused in a row than may come at once: this client does not heed
        what it is told."""
        return self._num_refused > self._burst

    def take(self, now_s: float) -> int | None:
        """None: one more message is taken. Else after how many milliseconds one would be."""
        left = self._left + (now_s - self._updated_s) * self._per_s
        self._left = min(self._burst, left)
        self._updated_s = now_s
        if self._left >= 1:
            self._left -= 1
            self._num_refused = 0
            return None
        self._num_refused += 1
        return int((1 - self._left) / self._per_s * 1000) + 1
