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

    __slots__ = ("_held", "_stops")

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        self._stops = tuple(sorted(stops, key=len, reverse=True))
        self._held = ""

    def push(self, text: str) -> StopResult:
        """Adds text. After a match the stream has ended: push nothing more."""
        if not self._stops:
            return StopResult(text, None)
        buffer = self._held + text
        self._held = ""
        match = self._first_match(buffer)
        if match is not None:
            start, stop = match
            return StopResult(buffer[:start], stop)
        keep = self._num_held(buffer)
        self._held = buffer[len(buffer) - keep :]
        return StopResult(buffer[: len(buffer) - keep], None)

    def flush(self) -> str:
        """The stream ended otherwise: what was held back belongs to the text."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, buffer: str) -> tuple[int, str] | None:
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            start = buffer.find(stop)
            if start >= 0 and (best is None or (start + len(stop), start) < best[:2]):
                best = (start + len(stop), start, stop)
        return None if best is None else (best[1], best[2])

    def _num_held(self, buffer: str) -> int:
        longest = min(len(self._stops[0]) - 1, len(buffer))
        for length in range(longest, 0, -1):
            tail = buffer[len(buffer) - length :]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
