"""A WebSocket client that may break every rule: it writes frames byte by byte."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from tests.server.service.harness import PATIENCE_S

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
FIN = 0x80


def frame(first: int, payload: bytes, *, masked: bool = True) -> bytes:
    """A whole frame; `first` is its first byte. The mask is zero: the payload stands as it is."""
    bit = 0x80 if masked else 0
    size = len(payload)
    if size < 126:
        head = bytes((first, bit | size))
    elif size < 1 << 16:
        head = bytes((first, bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, bit | 127)) + size.to_bytes(8, "big")
    return head + (bytes(4) if masked else b"") + payload


class RawSocket:
    """One connection whose handshake is done."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def write(self, data: bytes) -> None:
        """Raises ConnectionError when the server has gone."""
        self._writer.write(data)
        await self._writer.drain()

    async def read(self) -> tuple[int, bytes]:
        """The opcode and payload of the next frame. Raises IncompleteReadError at the end."""
        first, size = await self._reader.readexactly(2)
        assert first & FIN, "the server sends no fragments"
        assert size < 0x80, "the server does not mask"
        if size >= 126:
            size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8), "big")
        return first & 0x0F, await self._reader.readexactly(size)

    async def is_alive(self) -> tuple[list[dict[str, Any]], int | None]:
        """Sends a `ping` message. What was told before its `pong`, and None; or what was told
        before the server closed, and its close code. Fails when neither comes in time."""
        mark = secrets.token_hex(8)
        with suppress(ConnectionError):
            await self.write(frame(FIN | TEXT, json.dumps({"type": "ping", "id": mark}).encode()))
        told: list[dict[str, Any]] = []
        async with asyncio.timeout(PATIENCE_S):
            while True:
                opcode, payload = await self.read()
                if opcode == CLOSE:
                    return told, int.from_bytes(payload[:2], "big")
                if opcode != TEXT:
                    continue
                message = json.loads(payload)
                if message == {"type": "pong", "id": mark}:
                    return told, None
                told.append(message)


@asynccontextmanager
async def raw_socket(port: int, *, receive_buffer: int | None = None) -> AsyncIterator[RawSocket]:
    """Opens `/ws/v1` on the loopback address; `receive_buffer`: bytes that the system takes for
    a client that does not read."""
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=16 << 10)
    try:
        writer.write(
            b"GET /ws/v1 HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        yield RawSocket(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
