"""`Wire`: the way to one client, for those who cannot wait for each write.

ASGI's `send` is a coroutine, which only a task can run. Under uvicorn the object behind `send` has
the transport, and a frame may be written to it at once, as uvicorn would write it. Where there is
no such object (another server, a middleware that wraps `send`), frames are kept until the task of
the request sends them in `drained`. Both put the same bytes on the line.

Everything that is known of uvicorn's HTTP side stands here; of its WebSocket side, `ws_protocol`
knows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from server.service.http import Send, abort_connection


class Wire(Protocol):
    """What HTTP and WebSocket have in common. Owned by the event loop's thread."""

    @property
    def is_gone(self) -> bool:
        """The client has left: nothing that is written arrives. Over plain ASGI it is not known
        before `drained` raises or the server says so."""
        ...

    @property
    def is_full(self) -> bool:
        """The request's task must wait in `drained` before anything else should be written."""
        ...

    async def drained(self) -> None:
        """Returns when the client has taken enough of what was written. One task may wait. Raises
        ConnectionError, or what `send` raises, when the client has left."""
        ...

    def abort(self) -> None:
        """Drops the connection with all that is not sent yet: for clients that do not read."""
        ...


class BodyWire(Wire, Protocol):
    """The body of a reply whose `http.response.start` was sent."""

    def write(self, data: bytes) -> None:
        """Takes all of `data`, even when it is full, and never waits."""
        ...

    async def end(self, data: bytes = b"") -> None:
        """The last of the body. Not before `drained` where it is full."""
        ...


class MessageWire(Wire, Protocol):
    """The text messages of a WebSocket that was accepted. `ws_protocol` implements it, too."""

    def write_texts(self, messages: Sequence[bytes]) -> None:
        """Each of `messages` (UTF-8) as a message of its own. Takes all, even when it is full, and
        never waits."""
        ...


def body_wire(send: Send) -> BodyWire:
    """For a reply that has begun."""
    cycle = getattr(send, "__self__", None)
    if _UvicornBody.fits(cycle):
        return _UvicornBody(cycle, send)
    return _AsgiBody(send)


def message_wire(send: Send) -> MessageWire:
    """For a WebSocket that was accepted."""
    protocol: MessageWire | None = getattr(send, "__self__", None)
    if protocol is not None and callable(getattr(protocol, "write_texts", None)):
        return protocol
    return _AsgiMessages(send)


class _UvicornBody:
    """Over uvicorn's `RequestResponseCycle` for httptools. While a cycle is not complete, its
    connection serves no other: a pipelined request waits."""

    __slots__ = ("_cycle", "_flow", "_is_closing", "_send", "_write")

    def __init__(self, cycle: Any, send: Send) -> None:
        self._cycle = cycle
        self._flow = cycle.flow
        self._is_closing = cycle.transport.is_closing
        self._write = cycle.transport.write
        self._send = send

    @staticmethod
    def fits(cycle: Any) -> bool:
        """It is such an object, and its reply is chunked."""
        return (
            getattr(cycle, "chunked_encoding", None) is True
            and cycle.scope.get("method") != "HEAD"
            and all(hasattr(cycle, name) for name in ("transport", "disconnected"))
            and hasattr(getattr(cycle, "flow", None), "write_paused")
        )

    @property
    def is_gone(self) -> bool:
        # uvicorn closes on a client that breaks the protocol, and hears of the end a turn later.
        return bool(self._cycle.disconnected or self._is_closing())

    @property
    def is_full(self) -> bool:
        return bool(self._flow.write_paused)

    def write(self, data: bytes) -> None:
        # An empty chunk would be the end of the body.
        if data and not self.is_gone:
            self._write(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self, data: bytes = b"") -> None:
        if not self.is_gone:
            await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def drained(self) -> None:
        if self._flow.write_paused:
            await self._flow.drain()
        if self.is_gone:
            raise ConnectionResetError("the client has left")

    def abort(self) -> None:
        self._cycle.transport.abort()


class _Asgi:
    """Over nothing but `send`: what is written waits for `drained`."""

    __slots__ = ("_kept", "_send")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._kept: list[bytes] = []

    @property
    def is_gone(self) -> bool:
        return False

    @property
    def is_full(self) -> bool:
        return bool(self._kept)

    def abort(self) -> None:
        self._kept.clear()
        abort_connection(self._send)

    def _take(self) -> list[bytes]:
        kept, self._kept = self._kept, []
        return kept


class _AsgiBody(_Asgi):
    __slots__ = ()

    def write(self, data: bytes) -> None:
        if data:
            self._kept.append(data)

    async def end(self, data: bytes = b"") -> None:
        await self._send_body(b"".join([*self._take(), data]), more_body=False)

    async def drained(self) -> None:
        while self._kept:
            await self._send_body(b"".join(self._take()), more_body=True)

    async def _send_body(self, body: bytes, *, more_body: bool) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more_body})


class _AsgiMessages(_Asgi):
    __slots__ = ()

    def write_texts(self, messages: Sequence[bytes]) -> None:
        self._kept += messages

    async def drained(self) -> None:
        while self._kept:
            for message in self._take():
                await self._send({"type": "websocket.send", "text": message.decode()})
