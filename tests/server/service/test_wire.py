"""Bytes to a client: the same ones straight to uvicorn's transport and over plain ASGI."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.client import connect

from server.service.http import ASGIApp, Message, Receive, Scope, Send
from server.service.wire import BodyWire, MessageWire, body_wire, message_wire
from server.service.ws_protocol import LingeringWebSocketProtocol
from tests.server.service.harness import _Host, eventually

pytestmark = pytest.mark.anyio  # on both loops: their transports differ

BodyHandler = Callable[[BodyWire], Awaitable[None]]
MessageHandler = Callable[[MessageWire], Awaitable[None]]
DIRECT = [pytest.param(True, id="direct"), pytest.param(False, id="asgi")]


def wrapped(send: Send) -> Send:
    """As a middleware hands it on."""

    async def pass_on(message: Message) -> None:
        await send(message)

    return pass_on


@asynccontextmanager
async def hosted(app: ASGIApp, http: Any = "httptools") -> AsyncIterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            app,
            http=http,
            ws=LingeringWebSocketProtocol,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            date_header=False,
            timeout_graceful_shutdown=1,
        )
        host = _Host(config)
        task = asyncio.create_task(host.serve([listener]))
        try:
            yield listener.getsockname()[:2]
        finally:
            host.should_exit = True
            await task


def streaming(handler: BodyHandler, *, direct: bool, errors: list[Exception]) -> ASGIApp:
    """Every request is answered by what `handler` writes."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if not direct:
            send = wrapped(send)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            await handler(body_wire(send))
        except (ConnectionError, AssertionError) as error:
            errors.append(error)

    return app


async def written(wire: BodyWire | MessageWire) -> None:
    if wire.is_full:
        await wire.drained()


async def raw_reply(address: tuple[str, int], request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    async with asyncio.timeout(5):
        data = await reader.read()
    writer.close()
    return data


GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "request_",
    [GET, b"GET / HTTP/1.0\r\n\r\n", GET.replace(b"GET", b"HEAD")],
    ids=["1.1", "1.0", "HEAD"],
)
async def test_both_ways_put_the_same_bytes_on_the_line(request_: bytes) -> None:
    async def handler(wire: BodyWire) -> None:
        for data in (b"a", b"", b"bc" * 9, b"\r\n0\r\n\r\n", b"x" * 70_000):
            wire.write(data)
            await written(wire)
        await wire.end(b"last")

    replies, errors = [], list[Exception]()
    for direct in (True, False):
        async with hosted(streaming(handler, direct=direct, errors=errors)) as address:
            replies.append(await raw_reply(address, request_))
    assert errors == []
    assert replies[0] == replies[1]
    assert replies[0].startswith(b"HTTP/1.1 200 OK\r\n")
    assert (b"\r\n4\r\nlast\r\n0\r\n\r\n" in replies[0]) == (b"HEAD" not in request_)


@pytest.mark.parametrize("http", ["httptools", "h11"])
async def test_the_direct_way_is_taken_where_uvicorn_has_one(http: str) -> None:
    """Or streams would be slow, and nothing would say so."""
    taken: list[bool] = []

    async def handler(wire: BodyWire) -> None:
        wire.write(b"x")
        taken.append(not wire.is_full)  # over ASGI, only the task can send it
        await written(wire)
        await wire.end()

    app = streaming(handler, direct=True, errors=[])
    async with hosted(app, http) as address:
        reply = await raw_reply(address, GET)
    assert b"\r\n1\r\nx\r\n0\r\n\r\n" in reply
    assert taken == [http == "httptools"]


async def test_a_reply_of_known_length_is_left_to_uvicorn() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"3")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        wire = body_wire(send)
        wire.write(b"ab")
        await written(wire)
        await wire.end(b"c")

    async with hosted(app) as address:
        assert (await raw_reply(address, GET)).endswith(b"\r\n\r\nabc")


@pytest.mark.parametrize("direct", DIRECT)
async def test_pipelined_requests_are_answered_one_behind_another(direct: bool) -> None:
    numbers = iter(range(10))

    async def handler(wire: BodyWire) -> None:
        number = next(numbers)
        for part in range(3):
            wire.write(b"%d-%d" % (number, part))
            await written(wire)
            await asyncio.sleep(0)
        await wire.end()

    errors: list[Exception] = []
    async with hosted(streaming(handler, direct=direct, errors=errors)) as address:
        keep = GET.replace(b"Connection: close\r\n", b"")
        data = await raw_reply(address, keep + keep + GET)
    assert errors == []
    assert data.count(b"HTTP/1.1 200 OK") == 3
    parts = [f"{number}-{part}".encode() for number in range(3) for part in range(3)]
    found = [data.index(part) for part in parts]
    assert found == sorted(found)


@pytest.mark.parametrize("direct", DIRECT)
async def test_a_client_that_reads_late_gets_everything_in_order(direct: bool) -> None:
    total = 40
    is_waiting = asyncio.Event()

    async def handler(wire: BodyWire) -> None:
        for number in range(total):
            wire.write(b"%07d " % number * 25_000)  # 200 kB
            if direct and not wire.is_full:
                continue
            is_waiting.set()
            await wire.drained()
        await wire.end()

    errors: list[Exception] = []
    async with hosted(streaming(handler, direct=direct, errors=errors)) as address:
        reader, writer = await asyncio.open_connection(*address, limit=1024)
        writer.write(GET)
        async with asyncio.timeout(10):
            await is_waiting.wait()
            data = await reader.read()
        writer.close()
    assert errors == []
    seen = [int(part) for part in data.split() if len(part) == 7 and part.isdigit()]
    assert seen == [number for number in range(total) for _ in range(25_000)]


async def test_a_client_that_has_left_is_gone_and_what_is_written_is_dropped() -> None:
    wires: list[BodyWire] = []
    may_end = asyncio.Event()

    async def handler(wire: BodyWire) -> None:
        wires.append(wire)
        await may_end.wait()
        wire.write(b"nobody reads this")
        with pytest.raises(ConnectionError):
            await wire.drained()

    errors: list[Exception] = []
    async with hosted(streaming(handler, direct=True, errors=errors)) as address:
        _, writer = await asyncio.open_connection(*address)
        writer.write(GET)
        await eventually(lambda: bool(wires))
        assert not wires[0].is_gone
        writer.transport.abort()
        await eventually(lambda: wires[0].is_gone)
        may_end.set()
    assert errors == []


async def test_abort_drops_what_the_client_has_not_taken() -> None:
    size = 32 << 20
    has_aborted = asyncio.Event()

    async def handler(wire: BodyWire) -> None:
        wire.write(b"x" * size)
        assert wire.is_full
        wire.abort()
        has_aborted.set()

    errors: list[Exception] = []
    async with hosted(streaming(handler, direct=True, errors=errors)) as address:
        reader, writer = await asyncio.open_connection(*address, limit=1024)
        writer.write(GET)
        async with asyncio.timeout(5):
            await has_aborted.wait()
            data = await reader.read()
        writer.close()
    assert errors == []
    assert len(data) < size


def talking(handler: MessageHandler, *, direct: bool) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if not direct:
            send = wrapped(send)
        await receive()
        await send({"type": "websocket.accept"})
        await handler(message_wire(send))
        await send({"type": "websocket.close", "code": 1000})

    return app


SIZES = (0, 1, 125, 126, 127, 65_535, 65_536, 200_000)


@pytest.mark.parametrize("direct", DIRECT)
async def test_messages_of_every_size_are_messages_of_their_own(direct: bool) -> None:
    texts = [f"{'é'}{'x' * size}"[:size] for size in SIZES]
    ways: list[bool] = []

    async def handler(wire: MessageWire) -> None:
        wire.write_texts([texts[1].encode()])
        ways.append(not wire.is_full)
        await written(wire)
        wire.write_texts([text.encode() for text in texts])
        await written(wire)

    async with (
        hosted(talking(handler, direct=direct)) as (host, port),
        connect(f"ws://{host}:{port}/", proxy=None) as client,
    ):
        async with asyncio.timeout(5):
            got = [await client.recv() for _ in range(1 + len(texts))]
            await client.wait_closed()
    assert got == [texts[1], *texts]
    assert client.close_code == 1000
    assert ways == [direct]


async def test_nothing_is_written_behind_the_close_frame() -> None:
    wires: list[MessageWire] = []

    async def handler(wire: MessageWire) -> None:
        wires.append(wire)
        wire.write_texts([b"before"])

    async with (
        hosted(talking(handler, direct=True)) as (host, port),
        connect(f"ws://{host}:{port}/", proxy=None) as client,
    ):
        async with asyncio.timeout(5):
            assert await client.recv() == "before"
            await client.wait_closed()
        assert wires[0].is_gone
        wires[0].write_texts([b"behind"])
        with pytest.raises(ConnectionError):
            await wires[0].drained()
    assert client.close_code == 1000
