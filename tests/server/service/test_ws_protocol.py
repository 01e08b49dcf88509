"""What our WebSocket protocol writes when its client does not read."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from server.service.http import Receive, Scope, Send
from server.service.ws_protocol import LingeringWebSocketProtocol
from tests.server.service.harness import PATIENCE_S, eventually, hosted
from tests.server.service.raw_socket import CLOSE, FIN, PING, PONG, TEXT, frame

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class RecordingTransport:
    """Keeps what is written to it."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def get_extra_info(self, name: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def taken(self) -> bytes:
        """What was written since the last call."""
        data = b"".join(self.written)
        self.written.clear()
        return data


async def accepting(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def connected() -> tuple[LingeringWebSocketProtocol, RecordingTransport]:
    config = uvicorn.Config(cast(Any, accepting), ws_per_message_deflate=False, log_config=None)
    config.load()
    protocol = LingeringWebSocketProtocol(config, ServerState(), {}, asyncio.get_running_loop())
    transport = RecordingTransport()
    protocol.connection_made(cast(asyncio.Transport, transport))
    protocol.data_received(HANDSHAKE)
    await eventually(lambda: protocol.handshake_complete)
    assert b" 101 " in transport.taken()
    return protocol, transport


async def test_pongs_that_nobody_reads_are_not_kept() -> None:
    """Each ping was answered into the buffer of a client that read none of them."""
    protocol, transport = await connected()
    ping = frame(FIN | PING, b"are you there")
    pong = frame(FIN | PONG, b"are you there", masked=False)
    protocol.data_received(ping)
    assert transport.taken() == pong
    protocol.pause_writing()
    assert protocol.is_full
    protocol.data_received(ping * 1000)
    assert transport.taken() == b""
    protocol.resume_writing()
    assert not protocol.is_full
    protocol.data_received(ping)
    assert transport.taken() == pong
    protocol.pause_writing()
    protocol.data_received(ping + frame(FIN | CLOSE, b"\x03\xe8"))
    assert frame(FIN | CLOSE, b"\x03\xe8", masked=False) in transport.taken()
    protocol.connection_lost(None)
    with pytest.raises(ConnectionResetError):
        await protocol.drained()


async def test_several_messages_are_one_write_and_none_after_the_end() -> None:
    protocol, transport = await connected()
    messages = [b"x" * size for size in (0, 125, 126, 65_535, 65_536)]
    protocol.write_texts(messages)
    (written,) = transport.written
    assert transport.taken() == b"".join(frame(FIN | TEXT, m, masked=False) for m in messages)
    assert len(written) > 130_000
    protocol.data_received(frame(FIN | CLOSE, b""))
    transport.taken()
    protocol.write_texts([b"late"])
    assert transport.taken() == b""
    protocol.connection_lost(None)


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        (HANDSHAKE.replace(b"GET", b"POST").replace(b"Host", b"Content-Length: 2\r\nHost"), 400),
        (HANDSHAKE.replace(b"Host", b"Transfer-Encoding: chunked\r\nHost"), 400),
        (HANDSHAKE.replace(b"Host", b"Cookie: " + b"x" * 9000 + b"\r\nHost"), 431),
        (HANDSHAKE.replace(b"Host", b"X-Other: 1\r\n" * 130 + b"Host"), 431),
    ],
    ids=["a body", "a body in chunks", "a large cookie", "many headers"],
)
async def test_a_handshake_that_the_library_refuses_is_answered(
    changed: bytes, status: int
) -> None:
    """Its client waited for ever."""
    async with hosted(accepting) as port, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(changed)
        reply = await reader.read()
        writer.close()
    assert reply.startswith(b"HTTP/1.1 %d " % status)
