"""Replies of server-sent events: frames in, heartbeats where nothing happens, and an end to
clients that do not read.

The frames come ready made (`replies.ChunkEncoder`, `run_frame`); this module only sends. What is
new is written within the fan-out, without a task switch; the task of the request only waits for
the end, or for a client that takes less than is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from server.service.events import Event
from server.service.exchange import Exchange
from server.service.http import ClientGoneError, in_time
from server.service.limits import ServiceLimits
from server.service.replies import HEARTBEAT
from server.service.wire import BodyWire, body_wire

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies that buffer would hold the answer back
)


def run_frame(event: Event) -> bytes:
    """A run's event, with its number as the SSE id so that a browser resumes after it."""
    return b"id: %d\ndata: %b\n\n" % (event.seq, event.data)


class EventSource(Protocol):
    """What a reply is made from. Owned by the event loop's thread."""

    @property
    def is_done(self) -> bool:
        """Nothing comes behind what was taken."""
        ...

    def take(self) -> bytes:
        """What is new, as whole frames; empty where nothing is. What it raises ends the reply."""
        ...

    def follow(self, on_ready: Callable[[], None]) -> None:
        """`on_ready` is called whenever there may be something to take, and at once if there is.
        It does not take by itself."""
        ...

    def unfollow(self) -> None:
        """`on_ready` is not called any more. Idempotent."""
        ...


async def send_events(exchange: Exchange, source: EventSource, limits: ServiceLimits) -> None:
    """The whole reply, from its headers to its end.

    Raises SlowClientError for a client that takes nothing for `send_timeout_s`, ClientGoneError or
    ConnectionError for one that left, and what `source.take` raised."""
    exchange.status = 200
    headers = [*HEADERS, *exchange.headers]
    start = {"type": "http.response.start", "status": 200, "headers": headers}
    await in_time(exchange.send(start), limits.send_timeout_s)
    reply = _Reply(body_wire(exchange.send), source, limits)
    exchange.fan_out.watch(reply)
    try:
        source.follow(partial(exchange.fan_out.mark, reply))
        await reply.sent()
    finally:
        reply.close()
        source.unfollow()
        exchange.fan_out.unwatch(reply)


class _Reply:
    """One reply that is being sent: `flush` and `tick` within the fan-out, `sent` in the task of
    the request."""

    def __init__(self, wire: BodyWire, source: EventSource, limits: ServiceLimits) -> None:
        self._wire = wire
        self._source = source
        self._heartbeat_s = limits.heartbeat_s
        self._send_timeout_s = limits.send_timeout_s
        self._news = asyncio.Event()
        """Something that only the task can do: the end, or to wait for the client."""
        self._last: bytes | None = None
        """The last frames, when there are."""
        self._error: Exception | None = None
        self._is_closed = False
        self._has_written = True
        self._quiet_since_s = 0.0

    def flush(self) -> None:
        """Writes what is new; leaves it where it waits, and merges, while the client is slow."""
        wire, source = self._wire, self._source
        if self._is_closed or self._last is not None:
            return
        if wire.is_full or wire.is_gone:
            self._news.set()
            return
        try:
            frames = source.take()
        except Exception as error:  # noqa: BLE001 -- raised in the task that answers
            self._error = error
            self._news.set()
            return
        if source.is_done:
            self._last = frames
            self._news.set()
        elif frames:
            wire.write(frames)
            self._has_written = True
            if wire.is_full:
                self._news.set()

    def tick(self, now_s: float) -> None:
        """A heartbeat where nothing was written for `heartbeat_s`: proxies, and clients, take a
        silent connection for a dead one."""
        if self._has_written:
            self._has_written = False
            self._quiet_since_s = now_s
        elif now_s - self._quiet_since_s >= self._heartbeat_s and self._last is None:
            self._quiet_since_s = now_s
            wire = self._wire
            if not wire.is_full:
                wire.write(HEARTBEAT)
            self._news.set()

    async def sent(self) -> None:
        """Returns when the reply has been sent to its end."""
        while self._last is None:
            await self._news.wait()
            self._news.clear()
            if self._error is not None:
                raise self._error
            if self._wire.is_gone:
                raise ClientGoneError
            await self._drained()
            # What a flush left because the client was slow is not marked again, even where it
            # has caught up before this task had its turn.
            self.flush()
        await self._drained()
        await in_time(self._wire.end(self._last), self._send_timeout_s)

    def close(self) -> None:
        """Nothing is written any more."""
        self._is_closed = True

    async def _drained(self) -> None:
        if self._wire.is_full:
            await in_time(self._wire.drained(), self._send_timeout_s)
