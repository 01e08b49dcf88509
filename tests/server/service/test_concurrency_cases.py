"""CON-03 as clients see it: whoever comes and goes beside a request, over HTTP or WebSocket,
streamed or whole, its answer is the one that it gets alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from tests.server.service.harness import MODEL, TINY_MODEL, Json, Server, Socket, serving
from tests.server.service.request_books import Books
from tests.support.case_engine import prompt_tokens
from tests.support.cases import case

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

NUM_REQUESTS = 24
NUM_GIVEN_UP = 6
LETTERS = "etaoin shrdlu"
ENGINES: list[dict[str, Any]] = [
    {"enable_prefix_cache": cache, "max_num_batched_tokens": budget, "kv_cache_tokens": pool}
    for cache, budget, pool in (
        (True, 16, 232),
        (True, 256, 512),
        (False, 16, 512),
        (False, 256, 232),
    )
]
SLOTS: dict[str, Any] = {"max_num_seqs": 15, "block_size": 8}


@dataclass
class Asked:
    """One request, and what has come of it. `way`: how it is asked."""

    index: int
    way: str
    prompt: tuple[int, ...] | str
    max_tokens: int
    text: str = ""
    end: Any = None
    is_given_up: bool = False


def _requests() -> list[Asked]:
    dice = Random(11)
    ways = ("text whole", "text stream", "chat stream", "socket")
    requests = []
    for index in range(NUM_REQUESTS):
        way = ways[index % len(ways)]
        size, max_tokens = dice.randrange(1, 121), dice.randrange(1, 41)
        prompt: tuple[int, ...] | str = prompt_tokens(size, index)
        if not way.startswith("text"):
            prompt = "".join(dice.choice(LETTERS) for _ in range(size))
        requests.append(Asked(index, way, prompt, max_tokens))
    return requests


async def _ask(server: Server, asked: Asked, on_piece: Callable[[], Awaitable[None]]) -> None:
    """Asks, and notes what comes; `on_piece` after each piece."""
    fields: Json = {"max_tokens": asked.max_tokens, "temperature": 0, "ignore_eos": True}
    if asked.way == "socket":
        async with server.socket() as socket:
            await socket.hello()
            await socket.ask(str(asked.prompt), **fields)
            await _read_run(socket, asked, on_piece)
        return
    fields |= {"model": MODEL, "stream": asked.way.endswith("stream")}
    path = "/v1/completions"
    body: Json = {"prompt": asked.prompt, **fields}
    if asked.way.startswith("chat"):
        path = "/v1/chat/completions"
        body = {"messages": [{"role": "user", "content": asked.prompt}], **fields}
    async with server.http.stream("POST", path, json=body) as reply:
        assert reply.status_code == 200, await reply.aread()
        if asked.way == "text whole":
            (choice,) = json.loads(await reply.aread())["choices"]
            asked.text, asked.end = choice["text"], choice["finish_detail"]
            return
        async for line in reply.aiter_lines():
            if not line.startswith("data: {"):
                continue
            (choice,) = json.loads(line[6:])["choices"]
            asked.text += choice["delta"]["content"] if "delta" in choice else choice["text"]
            asked.end = choice.get("finish_detail")
            await on_piece()


async def _read_run(socket: Socket, asked: Asked, on_piece: Callable[[], Awaitable[None]]) -> None:
    while asked.end is None:
        event = await socket.receive()
        assert event["type"] != "error", event
        asked.text += event.get("text", "")
        asked.end = event.get("finish_detail")
        await on_piece()


async def _nothing() -> None:
    pass


class _Left(Exception):
    pass


async def _play(server: Server, asked: Asked, dice: Random) -> None:
    """Asks at some time; somebody who gives up leaves at some time, or in the midst of reading."""
    await asyncio.sleep(dice.random() * 0.4)
    patience_s, num_pieces = dice.random() * 0.3, dice.randrange(1, 4)
    is_reader = dice.random() < 0.5

    async def on_piece() -> None:
        nonlocal num_pieces
        num_pieces -= 1
        if asked.is_given_up and is_reader and num_pieces <= 0 and asked.end is None:
            raise _Left

    try:
        async with asyncio.timeout(patience_s if asked.is_given_up and not is_reader else 60):
            await _ask(server, asked, on_piece)
    except (TimeoutError, _Left):
        assert asked.is_given_up


async def test_con_03_over_http_and_websocket(monkeypatch: pytest.MonkeyPatch) -> None:
    assert case("CON-03")["expect"]["equal_to_alone"]
    alone = _requests()
    async with serving(model=TINY_MODEL, **SLOTS, enable_prefix_cache=False) as server:
        for asked in alone:
            await _ask(server, asked, _nothing)
            assert asked.end == {"type": "max_tokens"}
    assert len({asked.text for asked in alone}) > NUM_REQUESTS / 2
    num_left = 0
    for number, engine in enumerate(ENGINES):
        dice = Random(number)
        mixed = _requests()
        for asked in dice.sample(mixed, NUM_GIVEN_UP):
            asked.is_given_up = True
        with monkeypatch.context() as patch:
            async with serving(model=TINY_MODEL, **SLOTS, **engine) as server:
                books = Books(server, patch)
                await asyncio.gather(*[_play(server, asked, dice) for asked in mixed])
                # Runs outlive their sockets: they end by themselves.
                await server.until_idle(10)
                assert server.engine.stats.used_blocks == 0
                assert all(len(terminals) == 1 for terminals in books.terminals.values())
                assert server.service.admission.rates.num_accounts == 0
        for asked, reference in zip(mixed, alone, strict=True):
            if asked.end is not None:
                assert (asked.text, asked.end) == (reference.text, reference.end), engine
            else:
                num_left += 1
                assert asked.is_given_up
                assert reference.text.startswith(asked.text)
    assert num_left > len(ENGINES), "some did leave in the middle"
