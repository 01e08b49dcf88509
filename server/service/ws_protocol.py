"""uvicorn's WebSocket protocol, with an end that a client can read.

A frame over the size limit closes with 1009. uvicorn then closes the TCP connection at once, and
since the client is still sending, the system answers with a reset that overtakes the close frame:
the client sees an unexplained 1006. Here the connection stays open for reading, and what comes is
dropped, until the client has seen the close frame or a short time has passed.
"""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

LINGER_S = 5.0


class LingeringWebSocketProtocol(WebSocketsSansIOProtocol):
    """For `uvicorn.Config(ws=…)`. Owned by the event loop's thread."""

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
