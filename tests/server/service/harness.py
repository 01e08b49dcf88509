"""A real server over the scripted engine or a tiny model, in the test's own loop, so that a test
can look at the engine's counters while it talks HTTP and WebSocket like any client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from websockets.asyncio.client import ClientConnection, connect

from engine.api import Engine, EngineConfig, Script, create_engine, create_scripted_engine
from server.http_protocol import HttpProtocol
from server.service.auth import Auth
from server.service.conversation import ConversationApp
from server.service.http import ASGIApp
from server.service.limits import ServiceLimits
from server.service.origin import OriginPolicy
from server.service.prices import PriceList
from server.service.routes import create_routes
from server.service.service import Service
from server.service.tracing import Tracing
from server.service.ws_protocol import LingeringWebSocketProtocol
from tests.support.cases import CASES

MODEL = "scripted"
SECRET = b"a secret for tests only"
TINY_MODEL = CASES / "MOD-01-tied_sharded"
"""Two layers, a vocabulary of 260: the bytes and four control tokens; a window of 256."""

PATIENCE_S = 10.0
"""How long a test waits for what must come: only a test that fails takes so long."""

Json = dict[str, Any]


@dataclass
class Server:
    """A running server and a client for it."""

    service: Service
    engine: Engine
    http: httpx.AsyncClient
    base_url: str
    ws_url: str

    async def chat(self, content: str = "hi", /, **fields: Any) -> httpx.Response:
        """POST /v1/chat/completions with one user message."""
        messages = [{"role": "user", "content": content}]
        body = {"model": MODEL, "messages": messages, **fields}
        return await self.http.post("/v1/chat/completions", json=body)

    async def stream(self, content: str = "hi", /, **fields: Any) -> list[Json]:
        """The parsed events of a streamed chat, without [DONE], which must be there."""
        response = await self.chat(content, stream=True, **fields)
        assert response.status_code == 200, response.text
        return parse_sse(response.text)

    @asynccontextmanager
    async def socket(self, **headers: str) -> AsyncIterator[Socket]:
        async with connect(
            self.ws_url,
            subprotocols=["lectern.v1"],  # type: ignore[list-item]
            additional_headers=headers,
            compression=None,
            proxy=None,
        ) as connection:
            yield Socket(connection)

    @property
    def num_busy(self) -> int:
        """Sequences that run or wait."""
        return self.engine.stats.num_running + self.engine.stats.num_waiting

    @property
    def port(self) -> int:
        return int(self.base_url.rpartition(":")[2])

    async def until_idle(self, within_s: float = PATIENCE_S) -> None:
        """Waits until the engine has nothing to do; fails after `within_s`."""
        await eventually(lambda: self.num_busy == 0, within_s)


class Socket:
    """A raw WebSocket client with JSON frames."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, type: str, **fields: Any) -> None:
        await self.connection.send(json.dumps({"type": type, **fields}))

    async def receive(self) -> Json:
        async with asyncio.timeout(PATIENCE_S):
            frame = await self.connection.recv()
        assert isinstance(frame, str)
        found: Json = json.loads(frame)
        return found

    async def hello(self, **fields: Any) -> Json:
        await self.send("hello", **fields)
        welcome = await self.receive()
        assert welcome["type"] == "welcome", welcome
        return welcome

    async def ask(self, content: str = "hi", *, id: str = "q1", **options: Any) -> None:
        """Sends a plain chat."""
        messages = [{"role": "user", "content": content}]
        await self.send("chat", id=id, messages=messages, options=options)

    async def until(self, *types: str) -> list[Json]:
        """Everything up to and with the first message of one of `types`."""
        found: list[Json] = []
        while not found or found[-1]["type"] not in types:
            found.append(await self.receive())
        return found

    async def answer(self) -> list[Json]:
        return await self.until("finish", "error")


@asynccontextmanager
async def serving(
    script: Script | None = None,
    *,
    limits: ServiceLimits | None = None,
    auth: Auth | None = None,
    app: ConversationApp | None = None,
    model: Path | None = None,
    prices: PriceList | None = None,
    origins: OriginPolicy | None = None,
    tracing: Tracing | None = None,
    middleware: Callable[[ASGIApp], ASGIApp] | None = None,
    site: ASGIApp | None = None,
    **config: Any,
) -> AsyncIterator[Server]:
    """Serves a scripted engine, or `model` in float32, on a free port of the loopback address;
    `site` has all other addresses."""
    if model is None:
        engine_config = EngineConfig(
            Path("scripted"), served_name=MODEL, **{"max_model_len": 4096, **config}
        )
        engine = create_scripted_engine(engine_config, script)
    else:
        own = {"dtype": "float32", "kv_cache_tokens": 8192, **config}
        engine_config = EngineConfig(model, served_name=MODEL, **own)
        engine = create_engine(engine_config)
    service = Service(
        engine,
        auth or Auth(SECRET),
        limits or ServiceLimits(),
        origins=origins or OriginPolicy(),
        tracing=tracing,
        prices=prices,
    )
    await service.start()
    if app is not None:
        service.plug_in(app)
    routes = create_routes(service, site)
    served = routes if middleware is None else middleware(routes)
    async with hosted(served, ws_max_size=service.limits.max_message_bytes) as port:
        base_url = f"http://127.0.0.1:{port}"
        try:
            async with httpx.AsyncClient(base_url=base_url, timeout=20, trust_env=False) as client:
                yield Server(service, engine, client, base_url, f"ws://127.0.0.1:{port}/ws/v1")
        finally:
            await service.shutdown(0)


@asynccontextmanager
async def hosted(app: ASGIApp, **config: Any) -> AsyncIterator[int]:
    """Serves any application as the program does, on the loopback address; the port. `config`:
    uvicorn's, where it is to be another."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = _Host(
            uvicorn.Config(
                app,
                **{
                    "lifespan": "off",
                    "log_config": None,
                    "http": HttpProtocol,
                    "ws": LingeringWebSocketProtocol,
                    "ws_per_message_deflate": False,
                    "timeout_graceful_shutdown": 2,
                    **config,
                },
            )
        )
        task = asyncio.create_task(host.serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            host.should_exit = True
            await task


class _Host(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the test runner's signals are not ours


async def eventually(condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Waits until `condition` holds; fails after `within_s`."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 -- counters have no event to wait for
            await asyncio.sleep(0.005)


def parse_sse(raw: str) -> list[Json]:
    """The events of a whole OpenAI stream; checks the framing and that it ends with [DONE]."""
    events = raw.split("\n\n")
    assert events.pop() == ""
    assert events.pop() == "data: [DONE]"
    return [parse_event(event) for event in events if not event.startswith(":")]


def parse_event(event: str) -> Json:
    assert event.startswith("data: ")
    assert event.splitlines() == [event], "an event is one line for every kind of reader"
    found: Json = json.loads(event.removeprefix("data: "))
    return found


def text_of(events: list[Json], index: int = 0) -> str:
    """What the chat deltas of one choice join to."""
    return "".join(
        choice["delta"]["content"]
        for event in events
        for choice in event["choices"]
        if choice["index"] == index
    )


def filled(value: Any) -> Any:
    """A case's input with its short forms written out (`@default`, `@repeat`, `@list`)."""
    match value:
        case "@default":
            return MODEL
        case {"@repeat": [text, count], **rest}:
            return text * count + rest.get("then", "")
        case {"@list": [item, count]}:
            return [filled(item)] * count
        case dict():
            return {_key(key): filled(item) for key, item in value.items()}
        case list():
            return [filled(item) for item in value]
        case _:
            return value


def _key(key: str) -> str:
    return key.replace("@vocab_size-1", "259").replace("@vocab_size", "260")


def scripted_answer(tokens: list[Json]) -> list[bytes | int]:
    """`stub_emits` of a case as a scripted answer."""
    eos = 258
    return [bytes.fromhex(token["hex"]) if "hex" in token else eos for token in tokens]
