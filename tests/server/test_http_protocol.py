"""Clients that send the next request before the first was answered."""

from __future__ import annotations

import asyncio

import pytest

from server.http_protocol import MAX_READ_AHEAD
from server.service.http import Receive, Scope, Send, send_reply
from tests.server.service.harness import PATIENCE_S, hosted

pytestmark = pytest.mark.anyio  # on both loops: their transports differ

GET = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("num_ahead", [0, 1, MAX_READ_AHEAD - 1])
async def test_the_request_being_answered_hears_that_its_client_has_left(num_ahead: int) -> None:
    """Only the last one that was read did."""
    begun, heard = asyncio.Event(), list[str]()
    left = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.request"
        begun.set()
        assert (await receive())["type"] == "http.disconnect"
        heard.append(scope["path"])
        left.set()

    async with hosted(app) as port, asyncio.timeout(PATIENCE_S):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET % 0)
        await begun.wait()
        writer.write(b"".join(GET % number for number in range(1, num_ahead + 1)))
        await writer.drain()
        writer.close()
        await left.wait()
    assert heard == ["/0"], "what nobody waits for is not begun"


async def test_requests_beyond_what_is_read_ahead_are_answered_in_order() -> None:
    num_requests = 3 * MAX_READ_AHEAD

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0)
        await send_reply(send, f"<{scope['path']}>".encode())

    async with hosted(app) as port, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"".join(GET % number for number in range(num_requests)))
        last = f"</{num_requests - 1}>".encode()
        data = await reader.readuntil(last)
        writer.close()
    found = [data.index(f"</{number}>".encode()) for number in range(num_requests)]
    assert found == sorted(found)
