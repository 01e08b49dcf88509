"""Bytes to a client: the same ones straight to uvicorn's transport and over plain ASGI."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from websockets.asyncio.client import connect

from server.service.http import ASGIApp, Receive, Scope, Send
from server.service.wire import BodyWire, MessageWire, body_wire, message_wire
from tests.server.service.harness import eventually, hosted
from tests.server.service.wrappers import wrapped

pytestmark = pytest.mark.anyio  # on both loops: their transports differ

BodyHandler = Callable[[BodyWire], Awaitable[None]]
MessageHandler = Callable[[MessageWire], Awaitable[None]]
DIRECT = [pytest.param(True, id="direct"), pytest.param(False, id="asgi")]


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


async def raw_reply(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
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
        app = streaming(handler, direct=direct, errors=errors)
        async with hosted(app, date_header=False) as port:
            replies.append(await raw_reply(port, request_))
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
    async with hosted(app, http=http) as port:
        reply = await raw_reply(port, GET)
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

    async with hosted(app) as port:
        assert (await raw_reply(port, GET)).endswith(b"\r\n\r\nabc")


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
    async with hosted(streaming(handler, direct=direct, errors=errors)) as port:
        keep = GET.replace(b"Connection: close\r\n", b"")
        data = await raw_reply(port, keep + keep + GET)
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
    async with hosted(streaming(handler, direct=direct, errors=errors)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
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
    async with hosted(streaming(handler, direct=True, errors=errors)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
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
    async with hosted(streaming(handler, direct=True, errors=errors)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
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
        hosted(talking(handler, direct=direct)) as port,
        connect(f"ws://127.0.0.1:{port}/", proxy=None) as client,
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
        hosted(talking(handler, direct=True)) as port,
        connect(f"ws://127.0.0.1:{port}/", proxy=None) as client,
    ):
        async with asyncio.timeout(5):
            assert await client.recv() == "before"
            await client.wait_closed()
        assert wires[0].is_gone
        wires[0].write_texts([b"behind"])
        with pytest.raises(ConnectionError):
            await wires[0].drained()
    assert client.close_code == 1000


async def test_nothing_is_written_to_a_body_whose_connection_is_being_closed() -> None:
    """uvicorn hears of the end a turn later, and uvloop raises what is written until then."""
    is_gone: list[bool] = []

    async def handler(wire: BodyWire) -> None:
        wire.write(b"before")
        is_gone.append(wire.is_gone)
        wire.abort()
        is_gone.append(wire.is_gone)
        wire.write(b"behind")
        await wire.end(b"last")
        await wire.drained()

    errors: list[Exception] = []
    async with hosted(streaming(handler, direct=True, errors=errors)) as port:
        with contextlib.suppress(ConnectionError):
            await raw_reply(port, GET)
    assert is_gone == [False, True]
    assert [type(error) for error in errors] == [ConnectionResetError]
