"""`SocketWriter`: what one WebSocket is told: replies, and the events of the runs that it follows.

Nothing is queued per run: the writer holds a cursor into each log. What is new is written in the
fan-out, in one write for all runs of the connection. A client that takes less than is written is
left alone until it has caught up; then it gets what it missed, long stretches of deltas as one
snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from server.service.fan_out import FanOut
from server.service.http import Send, in_time
from server.service.limits import ServiceLimits
from server.service.run import MAX_WRITE_BYTES, Run, RunReader
from server.service.user_connections import RETRY_CONNECTION_MS
from server.service.wire import message_wire

CLOSE_OVERLOAD = 1013
TOO_MANY_CONNECTIONS = f"too many connections; retry after {RETRY_CONNECTION_MS} ms"
"""Reasons of a close as overload end with when it is worth coming back."""


class SocketWriter:
    """Owned by the event loop's thread. Flushed by the fan-out, which it marks itself in."""

    def __init__(
        self, send: Send, fan_out: FanOut, limits: ServiceLimits, is_busy: Callable[[], bool]
    ) -> None:
        """`is_busy`: something is being done that will still have something to tell; `wake` when
        it no longer is."""
        self._send = send
        self._wire = message_wire(send)
        self._fan_out = fan_out
        self._limits = limits
        self._is_busy = is_busy
        self._following: dict[str, RunReader] = {}
        self._ready: dict[str, None] = {}
        self._replies: list[bytes] = []
        self._closing: tuple[int, str] | None = None
        self._woken = asyncio.Event()

    @property
    def num_following(self) -> int:
        """Runs whose events are still to come."""
        return len(self._following)

    @property
    def is_closing(self) -> bool:
        return self._closing is not None

    def follows(self, run_id: str) -> bool:
        return run_id in self._following

    def follow(self, run: Run, after_seq: int) -> None:
        """Writes the run's events after `after_seq`, until its last one; in place of what was
        followed of it before."""
        self.unfollow(run.id)
        self._following[run.id] = run.follow(after_seq, partial(self._mark, run.id))
        self._mark(run.id)

    def unfollow(self, run_id: str) -> None:
        """Idempotent."""
        reader = self._following.pop(run_id, None)
        if reader is not None:
            reader.close()

    def unfollow_all(self) -> None:
        for run_id in list(self._following):
            self.unfollow(run_id)

    def tell(self, message: bytes) -> None:
        """A message outside runs. A client that does not read them is closed as overload."""
        if len(self._replies) >= self._limits.max_outbox_messages:
            self._replies.clear()
            self.close(CLOSE_OVERLOAD, "replies are not read; retry after 1000 ms")
            return
        self._replies.append(message)
        self._fan_out.mark(self)

    def close(self, code: int, reason: str) -> None:
        """Closes after what is ready was written. The first call counts."""
        if self._closing is None:
            self._closing = (code, reason)
            self.wake()

    def abort(self) -> None:
        """Drops the connection of a client that does not read."""
        self._wire.abort()

    def wake(self) -> None:
        """Lets `serve` look again whether there is nothing more to tell."""
        self._woken.set()

    def flush(self) -> None:
        """Writes what is new, unless the client is behind."""
        if self._wire.is_full:
            self._woken.set()
            return
        messages, self._replies = self._replies, []
        size = 0
        ready, self._ready = self._ready, {}
        for run_id in ready:
            reader = self._following.get(run_id)
            if reader is None:
                continue
            if size >= MAX_WRITE_BYTES:
                self._ready[run_id] = None
                continue
            for event in reader.take(MAX_WRITE_BYTES - size):
                messages.append(event.data)
                size += len(event.data)
            if reader.has_more:
                self._ready[run_id] = None
            elif reader.is_done:
                self.unfollow(run_id)
        if messages:
            self._wire.write_texts(messages)
        if self._ready:
            self._fan_out.mark(self)
        if self._wire.is_full or self._closing is not None:
            self._woken.set()

    async def serve(self) -> None:
        """Waits for a client that is behind, and returns when the connection was closed. Raises
        SlowClientError after `send_timeout_s` in which such a client took too little,
        ConnectionError when it has left."""
        while True:
            if self._wire.is_full or self._wire.is_gone:
                await in_time(self._wire.drained(), self._limits.send_timeout_s)
            if not self._is_told:
                self._fan_out.mark(self)
            # A question that is being taken still hears whether it was.
            elif self._closing is not None and not self._is_busy():
                code, reason = self._closing
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
                return
            self._woken.clear()
            await self._woken.wait()

    @property
    def _is_told(self) -> bool:
        return not self._replies and not self._ready

    def _mark(self, run_id: str) -> None:
        # Where something is ready already, the mark is set, or waits for the client.
        if not self._ready:
            self._fan_out.mark(self)
        self._ready[run_id] = None
