"""`StopMatcher`: finds stop strings in a stream and lets no part of one out."""

from __future__ import annotations

from typing import NamedTuple


class StopResult(NamedTuple):
    """`text` may be sent; `matched` is the stop string that ended the stream, if one did."""

    text: str
    matched: str | None


class StopMatcher:
    """Holds back the shortest tail that could still become a stop string, and nothing else.

    The match that is complete first wins; of those that end at the same character, the longest.
    So the result does not depend on how the stream was split. Owned by the engine thread."""

    __slots__ = ("_num_sent", "_stops", "_tail", "first_characters")

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        self._stops = tuple(sorted(stops, key=len, reverse=True))
        self.first_characters = frozenset(stop[0] for stop in stops)
        self._tail = ""
        self._num_sent = 0  # characters of `_tail` that are out already: only after `prime`

    @property
    def is_holding(self) -> bool:
        """Whether the text so far may end with the beginning of a stop string. If not, text
        without any of `first_characters` need not be pushed: it comes out as it is."""
        return bool(self._tail)

    def prime(self, sent: str) -> None:
        """Begins behind text that was sent before. A stop string may begin in it; what was sent
        stays sent, and a match ends the stream at once."""
        if self._stops:
            keep = self._num_held(sent)
            self._tail = sent[len(sent) - keep :]
            self._num_sent = keep

    def push(self, text: str, *, may_match: bool = True) -> StopResult:
        """Adds text. After a match the stream has ended: push nothing more. A stop string that
        is completed by text which may not match is ordinary text."""
        if not self._stops:
            return StopResult(text, None)
        buffer, num_sent = self._tail + text, self._num_sent
        self._tail, self._num_sent = "", 0
        match = self._first_match(buffer, len(buffer) - len(text)) if may_match else None
        if match is not None:
            start, stop = match
            return StopResult(buffer[num_sent:start], stop)
        end = len(buffer) - self._num_held(buffer)
        self._tail, self._num_sent = buffer[end:], max(0, num_sent - end)
        return StopResult(buffer[num_sent:end], None)

    def flush(self) -> str:
        """The stream ended otherwise: what was held back belongs to the text."""
        held = self._tail[self._num_sent :]
        self._tail, self._num_sent = "", 0
        return held

    def _first_match(self, buffer: str, num_old: int) -> tuple[int, str] | None:
        """Start and stop string; only those that end behind the first `num_old` characters."""
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            start = buffer.find(stop, max(0, num_old - len(stop) + 1))
            if start >= 0 and (best is None or (start + len(stop), start) < best[:2]):
                best = (start + len(stop), start, stop)
        return None if best is None else (best[1], best[2])

    def _num_held(self, buffer: str) -> int:
        longest = min(len(self._stops[0]) - 1, len(buffer))
        for length in range(longest, 0, -1):
            if buffer[-length] not in self.first_characters:
                continue
            tail = buffer[len(buffer) - length :]
            if any(len(stop) > length and stop.startswith(tail) for stop in self._stops):
                return length
        return 0
