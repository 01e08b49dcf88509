"""Server-sent events over plain ASGI: frames in, a heartbeat until the first one, and an end to
clients that do not read.

The frames come ready made (`replies.ChunkEncoder`, `run_frame`); this module only sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from server.service.events import Event
from server.service.http import Send, SlowClientError
from server.service.limits import ServiceLimits
from server.service.replies import HEARTBEAT

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies that buffer would hold the answer back
)


def run_frame(event: Event) -> bytes:
    """A run's event, with its number as the SSE id so that a browser resumes after it."""
    return b"id: %d\ndata: %b\n\n" % (event.seq, event.data)


class SSEWriter:
    """Sends frames of one stream. Owned by the task that answers the request."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._is_begun = False
        self._sending_since: float | None = None

    async def write(self, frames: bytes) -> None:
        """Sends one or more whole frames; waits while the client's buffer is full."""
        self._is_begun = True
        self._sending_since = self._loop.time()
        await self._send({"type": "http.response.body", "body": frames, "more_body": True})
        self._sending_since = None

    async def end(self, frames: bytes = b"") -> None:
        """Sends the last frames and ends the reply."""
        self._is_begun = True
        self._sending_since = self._loop.time()
        await self._send({"type": "http.response.body", "body": frames, "more_body": False})
        self._sending_since = None

    def is_stalled(self, timeout_s: float) -> bool:
        """A send has waited for the client longer than `timeout_s`."""
        since = self._sending_since
        return since is not None and self._loop.time() - since > timeout_s

    async def beat(self) -> None:
        """A comment that keeps proxies from closing a stream that has not begun."""
        if not self._is_begun:
            await self._send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})


@asynccontextmanager
async def event_stream(
    send: Send, limits: ServiceLimits, headers: Iterable[tuple[bytes, bytes]] = ()
) -> AsyncIterator[SSEWriter]:
    """Starts the reply and yields its writer. Raises SlowClientError inside the block when a
    send stalls for `send_timeout_s`."""
    task = asyncio.current_task()
    assert task is not None
    is_slow = False
    await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *headers]})
    writer = SSEWriter(send)

    async def watch() -> None:
        nonlocal is_slow
        loop = asyncio.get_running_loop()
        tick_s = min(limits.heartbeat_s, limits.send_timeout_s / 4)
        next_beat = loop.time() + limits.heartbeat_s
        while not writer.is_stalled(limits.send_timeout_s):
            await asyncio.sleep(tick_s)
            if loop.time() >= next_beat:
                next_beat = loop.time() + limits.heartbeat_s
                try:
                    async with asyncio.timeout(limits.send_timeout_s):
                        await writer.beat()
                except TimeoutError:
                    break
        is_slow = True
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield writer
    except asyncio.CancelledError:
        if is_slow and task.uncancel() == 0:
            raise SlowClientError from None
        raise
    finally:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
