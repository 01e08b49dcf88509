"""A client at the other end of a reply, without a network: it reads, pauses and leaves at will."""

from __future__ import annotations

import asyncio
from typing import Any

from server.service.exchange import Exchange
from server.service.fan_out import FanOut
from server.service.http import Message, Send
from tests.server.service.wrappers import wrapped


class StreamClient:
    """Stands where uvicorn's `RequestResponseCycle` does. What is written comes to `body`, whether
    it was sent over ASGI or written to the transport."""

    def __init__(self) -> None:
        self.scope = {"method": "POST", "path": "/", "headers": []}
        self.chunked_encoding: bool | None = None
        self.disconnected = False
        self.flow = _Flow()
        self.transport = self
        self.is_complete = False
        self.is_aborted = False
        self.writes: list[bytes] = []
        """As the application wrote them, one by one."""

    @property
    def body(self) -> bytes:
        return b"".join(self.writes)

    async def send(self, message: Message) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        assert not self.is_complete, message
        if message["type"] == "http.response.start":
            self.chunked_encoding = True
            return
        if message["body"]:
            self.writes.append(message["body"])
        self.is_complete = not message["more_body"]

    def write(self, data: bytes) -> None:
        assert not self.is_complete, data
        size, _, rest = data.partition(b"\r\n")
        assert int(size, 16) == len(rest) - 2 > 0
        assert rest.endswith(b"\r\n")
        self.writes.append(rest[:-2])

    def abort(self) -> None:
        self.is_aborted = True
        self.leave()

    def is_closing(self) -> bool:
        return self.is_aborted

    def pause(self) -> None:
        """Takes nothing more: the transport's buffer is full from now on."""
        self.flow.write_paused = True
        self.flow.is_writable.clear()

    def resume(self) -> None:
        self.flow.write_paused = False
        self.flow.is_writable.set()

    def leave(self) -> None:
        """As uvicorn has it when a connection is lost."""
        self.disconnected = True
        self.resume()

    def exchange(self, *, direct: bool, fan_out: FanOut | None = None) -> Exchange:
        """`direct` False: behind a middleware, which wraps `send`."""
        send: Send = self.send
        if not direct:
            send = wrapped(send)
        return Exchange("/", self.scope, _never, send, fan_out or FanOut())


class _Flow:
    def __init__(self) -> None:
        self.write_paused = False
        self.is_writable = asyncio.Event()
        self.is_writable.set()

    async def drain(self) -> None:
        await self.is_writable.wait()


async def _never() -> Any:
    await asyncio.Event().wait()


async def turns(count: int = 5) -> None:
    """Lets everything run that is ready."""
    for _ in range(count):
        await asyncio.sleep(0)
