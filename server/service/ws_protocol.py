"""uvicorn's WebSocket protocol, with an end that a client can read, and text messages that are
written without waiting.

A frame over the size limit closes with 1009. uvicorn then closes the TCP connection at once, and
since the client is still sending, the system answers with a reset that overtakes the close frame:
the client sees an unexplained 1006. Here the connection stays open for reading, and what comes is
dropped, until the client has seen the close frame or a short time has passed.
"""

from __future__ import annotations

from collections.abc import Sequence

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

LINGER_S = 5.0

MAX_FRAGMENTS = 4096
"""Of one message."""

_BAD_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
"""Where the library has no words of its own: a body, a method with which nobody upgrades."""


class LingeringWebSocketProtocol(WebSocketsSansIOProtocol):
    """For `uvicorn.Config(ws=…)`. Owned by the event loop's thread."""

    is_full = False
    """The client takes less than is written: await `drained` before the next message."""

    @property
    def is_gone(self) -> bool:
        """Nothing that is written would be read as a message any more."""
        return self.disconnected or self.close_sent or self.transport.is_closing()

    def write_texts(self, messages: Sequence[bytes]) -> None:
        """Text messages (UTF-8), each a frame of its own, in one write; never waits. For a
        handshake that is complete and without extensions; dropped when `is_gone`.

        What the parent class writes it writes at once, too, so a frame is never cut by another."""
        if self.handshake_complete and not self.is_gone:
            frames = [_head(len(message)) + message for message in messages]
            self.transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    async def drained(self) -> None:
        """Returns when the client has taken enough of what was written. Raises
        ConnectionResetError when it has left."""
        await self.writable.wait()
        if self.is_gone:
            raise ConnectionResetError("the client has left")

    def abort(self) -> None:
        """Drops the connection with all that is not sent yet."""
        self.transport.abort()

    def pause_writing(self) -> None:
        self.is_full = True
        super().pause_writing()

    def resume_writing(self) -> None:
        self.is_full = False
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # uvicorn is silent where the library has refused a handshake without showing it.
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.write(b"".join(self.conn.data_to_send()) or _BAD_HANDSHAKE)
            self.transport.close()

    def handle_ping(self) -> None:
        # A client that sends pings and reads no pongs would fill the memory with them; whoever
        # closes, though, is still answered.
        output = b"".join(self.conn.data_to_send())
        if not self.is_full or self.conn.close_sent is not None:
            self.transport.write(output)

    def handle_cont(self, event: Frame) -> None:
        # Fragments without a byte count for nothing against the limit on a message's size.
        if len(self.frames) >= MAX_FRAGMENTS:
            self.frames = []
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, "too many fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    def handle_parser_exception(self) -> None:
        if self.close_sent:
            return  # the parser drops what still comes
        closed = self.conn.close_sent
        assert closed is not None
        self.queue.put_nowait(
            {"type": "websocket.disconnect", "code": closed.code, "reason": closed.reason}
        )
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.write_eof()
        # With a timer set, uvicorn leaves the connection open when the application returns.
        self.close_timer = self.loop.call_later(LINGER_S, self.transport.close)


def _head(size: int) -> bytes:
    """The head of a text frame that is a whole message of `size` bytes, without a mask."""
    if size < 126:
        return b"\x81%c" % size
    if size < 1 << 16:
        return b"\x81\x7e%c%c" % (size >> 8, size & 0xFF)
    return b"\x81\x7f" + size.to_bytes(8, "big")
