"""A client that has sent a part of its request's body only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from server.service.limits import ServiceLimits
from tests.server.service.harness import PATIENCE_S, Server, eventually, serving

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize"]


@asynccontextmanager
async def half_sent(server: Server, path: str) -> AsyncIterator[asyncio.StreamReader]:
    """The reader of a connection on which half of a body was sent, once the server waits for
    the rest of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n"
    writer.write(head.encode() + b'{"prompt": "a')
    bodies = server.service.admission.bodies
    num_before = bodies.num_awaited
    await eventually(lambda: bodies.num_awaited > num_before)
    try:
        yield reader
    finally:
        writer.close()


async def reply(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The status line, and everything up to the end of the connection."""
    async with asyncio.timeout(PATIENCE_S):
        data = await reader.read()
    return data.partition(b"\r\n")[0], data


@pytest.mark.parametrize("path", PATHS)
async def test_a_drain_does_not_wait_for_it(path: str) -> None:
    async with serving() as server, half_sent(server, path) as reader:
        server.service.admission.drain()
        status, data = await reply(reader)
        assert status == b"HTTP/1.1 503 Service Unavailable"
        assert b"shutting_down" in data
        assert b"connection: close" in data
        assert server.service.admission.bodies.num_awaited == 0


async def test_it_is_told_when_its_time_is_over() -> None:
    async with serving(limits=ServiceLimits(body_timeout_s=0.2)) as server:
        async with half_sent(server, PATHS[0]) as reader:
            status, data = await reply(reader)
        assert status == b"HTTP/1.1 408 Request Timeout"
        assert b"connection: close" in data
        assert (await server.chat()).status_code == 200
