"""Ready, signals, drain, engine failure: the order in which a server lives and ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from server.config import ServerConfig
from server.host import EngineFailedError, Hooks, Host, PortError, address_of, bind

pytestmark = pytest.mark.anyio


class World:
    """An app and an engine that note what happens to them."""

    def __init__(self, data_dir: Path) -> None:
        self.events: list[str] = []
        self.ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.starting = asyncio.Event()
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.drained = asyncio.Event()
        self.socket = bind("127.0.0.1", 0)
        app = Starlette(
            routes=[Route("/", self.hello), Route("/stream", self.stream)],
            lifespan=self.lifespan,
        )
        hooks = Hooks(self.ready.set_result, self.on_stop, self.drain, self.wait_failed)
        self.host = Host(app, ServerConfig(data_dir=data_dir), self.socket, hooks)

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.events.append("starting")
        self.starting.set()
        await self.may_start.wait()
        yield
        self.events.append("ended")

    async def hello(self, _: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    async def stream(self, _: Request) -> StreamingResponse:
        async def body() -> AsyncIterator[str]:
            yield "first\n"
            await self.drained.wait()
            yield "last\n"

        return StreamingResponse(body())

    def on_stop(self) -> None:
        self.events.append("stop")

    async def drain(self) -> None:
        self.events.append("drain")
        self.drained.set()

    async def wait_failed(self) -> str:
        return await asyncio.shield(self.failed)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    world.socket.close()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().remove_signal_handler(number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_open_streams_and_ends(world: World, number: int) -> None:
    serving = asyncio.create_task(world.host.serve())
    address = await world.ready
    async with httpx.AsyncClient(base_url=address) as client:
        assert (await client.get("/")).text == "hello"
        async with client.stream("GET", "/stream") as response:
            assert "server" not in response.headers
            lines = response.aiter_lines()
            assert await anext(lines) == "first"
            os.kill(os.getpid(), number)
            assert await anext(lines) == "last", "no stream is cut without its end"
    await serving
    assert world.events == ["starting", "stop", "drain", "ended"]


async def test_it_is_ready_only_when_it_can_answer(world: World) -> None:
    world.may_start.clear()
    serving = asyncio.create_task(world.host.serve())
    await world.starting.wait()
    with pytest.raises(httpx.ConnectError):
        async with httpx.AsyncClient() as client:
            await client.get(address_of(world.socket))
    assert not world.ready.done()
    world.may_start.set()
    await world.ready
    os.kill(os.getpid(), signal.SIGTERM)
    await serving


async def test_a_signal_while_starting_cancels_the_start(world: World) -> None:
    world.may_start.clear()
    serving = asyncio.create_task(world.host.serve())
    await world.starting.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await serving
    assert world.events == ["starting", "stop"]
    assert not world.ready.done()


async def test_a_signal_before_it_listens_is_followed_by_no_word_that_it_is_ready(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    startup = uvicorn.Server.startup

    async def signalled(server: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        while "stop" not in world.events:  # noqa: ASYNC110 -- a list has no event
            await asyncio.sleep(0)
        await startup(server, sockets)

    monkeypatch.setattr(uvicorn.Server, "startup", signalled)
    await world.host.serve()
    assert world.events == ["starting", "stop", "drain", "ended"]
    assert not world.ready.done()


async def test_a_failed_engine_ends_the_server_after_a_drain(world: World) -> None:
    serving = asyncio.create_task(world.host.serve())
    await world.ready
    world.failed.set_result("The engine failed.")
    with pytest.raises(EngineFailedError, match="The engine failed"):
        await serving
    assert world.events == ["starting", "drain", "ended"]


@pytest.fixture
def busy() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock


def test_a_port_in_use_is_said_in_words(busy: socket.socket) -> None:
    port = busy.getsockname()[1]
    with pytest.raises(PortError, match=rf"Port {port} on 127.0.0.1 is in use"):
        bind("127.0.0.1", port)


def test_an_address_of_another_machine_cannot_be_bound() -> None:
    with pytest.raises(PortError):
        bind("192.0.2.1", 0)
    with pytest.raises(PortError):
        bind("no-such-host.invalid", 0)


def test_addresses() -> None:
    with bind("127.0.0.1", 0) as sock:
        assert address_of(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}"
    with bind("::1", 0) as sock:
        assert address_of(sock) == f"http://[::1]:{sock.getsockname()[1]}"
