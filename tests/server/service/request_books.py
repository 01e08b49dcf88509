"""What a server's engine was asked, and how each request ended: for tests of endings."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from engine.api import (
    FinishType,
    GenerationRequest,
    OutputStream,
    OverloadedError,
    RequestId,
    RequestOutput,
    SamplingParams,
    Script,
)
from engine.async_engine import AsyncEngine
from tests.server.service.harness import Json, Server, eventually

BYSTANDER = RequestId("bystander")
PROMPT = "x" * 960
"""Sixty blocks: nobody can overlook them."""
ENDLESS = Script(answer=lambda _: "ab" * 5000, token_s=0.003, token_chars=2)
TORRENT = Script(answer=lambda _: "讲" * 4_000_000, token_s=0.001, token_chars=4000)
ROUTES = {
    "chat": "/v1/chat/completions",
    "text": "/v1/completions",
    "response": "/v1/responses",
}
_FINISHED = re.compile(r'lectern_generations_finished_total\{detail="(\w+)"\} (\d+)')


def request_body(route: str, *, stream: bool, n: int = 1, **fields: object) -> Json:
    """A request of that route for a long answer to `PROMPT`."""
    body: Json = {"model": "scripted", "stream": stream, **fields}
    if route == "chat":
        return {"messages": [{"role": "user", "content": PROMPT}], "n": n, **body}
    if route == "text":
        return {"prompt": PROMPT, "n": n, "max_tokens": 3000, **body}
    assert n == 1
    return {"input": PROMPT, **body}


async def raw_request(server: Server, path: str, body: Json) -> socket.socket:
    """A connection on which the request was sent, and which nobody reads."""
    content = json.dumps(body).encode()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, ("127.0.0.1", server.port))
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(content)}\r\n"
    await loop.sock_sendall(connection, head.encode() + b"\r\n" + content)
    return connection


@dataclass(frozen=True)
class Terminal:
    """One terminal output, and what the engine said in that moment."""

    detail: FinishType
    num_steps: int
    used_blocks: int


@dataclass
class Books:
    """Watches the engine of `server` from now on. A request beside the others keeps it stepping."""

    server: Server
    monkeypatch: pytest.MonkeyPatch
    refuse_from: int | None = None
    """The place in `submitted` from which the engine says that it is full."""
    submitted: list[RequestId] = field(default_factory=list)
    terminals: dict[RequestId, list[Terminal]] = field(default_factory=dict)
    _asked_at: dict[RequestId, int] = field(default_factory=dict)
    """The engine's step in which the server first asked for an end."""
    _freed_at: dict[RequestId, int] = field(default_factory=dict)
    """The step before which the engine's thread gave the blocks back."""
    _tasks: set[asyncio.Task[object]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._tasks = asyncio.all_tasks()
        self._finished_before = self.finished()
        engine = self.server.engine
        assert isinstance(engine, AsyncEngine)
        assert engine._assembly is not None
        core = engine._assembly.core
        generate, abort, put = engine.generate, engine.abort, OutputStream.put
        core_abort = core.abort

        @asynccontextmanager
        async def watched_generate(request: GenerationRequest) -> AsyncIterator[OutputStream]:
            if self.refuse_from is not None and len(self.submitted) >= self.refuse_from:
                raise OverloadedError("The test says that it is full.")
            self.submitted.append(request.request_id)
            async with generate(request) as stream:
                yield stream

        def watched_abort(request_id: RequestId, detail: FinishType = FinishType.CANCELLED) -> None:
            # Not `engine.stats`: the loop hears of a step only when it has time.
            self._asked_at.setdefault(request_id, core.stats().num_steps)
            abort(request_id, detail)

        def watched_core_abort(request_id: RequestId, detail: FinishType) -> list[RequestOutput]:
            outputs = core_abort(request_id, detail)
            if outputs:
                self._freed_at[request_id] = core.stats().num_steps
            return outputs

        def watched_put(stream: OutputStream, output: RequestOutput) -> None:
            put(stream, output)
            if output.finish is not None:
                stats = engine.stats
                self.terminals.setdefault(output.request_id, []).append(
                    Terminal(output.finish.detail.type, stats.num_steps, stats.used_blocks)
                )

        self.monkeypatch.setattr(engine, "generate", watched_generate)
        self.monkeypatch.setattr(engine, "abort", watched_abort)
        self.monkeypatch.setattr(core, "abort", watched_core_abort)
        self.monkeypatch.setattr(OutputStream, "put", watched_put)

    def finished(self) -> dict[str, int]:
        """The metric: how many generations ended by each detail."""
        text = self.server.service.metrics.render().decode()
        return {detail: int(count) for detail, count in _FINISHED.findall(text)}

    def newly_finished(self) -> dict[str, int]:
        """The same since the books were opened."""
        return {
            detail: count - self._finished_before.get(detail, 0)
            for detail, count in self.finished().items()
            if count > self._finished_before.get(detail, 0)
        }

    async def until_running(self, num: int) -> None:
        """Waits until so many requests beside the bystander run and have sampled something."""
        engine = self.server.engine
        await eventually(lambda: engine.stats.num_running == num + 1)
        sampled = engine.stats.generated_tokens
        await eventually(lambda: engine.stats.generated_tokens >= sampled + 3 * (num + 1))

    async def check(self, detail: FinishType, num: int, *, is_counted: bool = True) -> None:
        """All `num` requests have ended, once each and as `detail`, within two steps of being
        asked to; nothing that they held is held any more."""
        await eventually(lambda: len(self.terminals.keys() - {BYSTANDER}) == num)
        for request_id, terminals in self.terminals.items():
            if request_id != BYSTANDER:
                (terminal,) = terminals
                assert terminal.detail is detail
                if detail in (
                    FinishType.CLIENT_GONE,
                    FinishType.SLOW_CLIENT,
                    FinishType.CANCELLED,
                ):
                    asked_at = self._asked_at[request_id]
                    assert self._freed_at[request_id] - asked_at <= 2
        last = max(
            (found[0] for name, found in self.terminals.items() if name != BYSTANDER),
            key=lambda terminal: terminal.num_steps,
        )
        assert last.used_blocks * 16 < len(PROMPT), "only the bystander's"
        admission = self.server.service.admission
        await eventually(lambda: admission.rates.num_accounts == 0)
        assert admission.num_preparing == 0
        await eventually(lambda: not self.tasks_left())
        assert self.newly_finished() == ({detail.value: num} if is_counted else {})

    def tasks_left(self) -> set[asyncio.Task[object]]:
        """Tasks that were begun since the books were opened and have not ended."""
        here = asyncio.current_task()
        return {task for task in asyncio.all_tasks() - self._tasks if task is not here}


class Bystander:
    """`async with` it: a request beside the others, of a few blocks, that never ends."""

    def __init__(self, server: Server) -> None:
        params = SamplingParams(ignore_eos=True)
        request = GenerationRequest(BYSTANDER, tuple(range(1, 30)), params)
        self._context = server.engine.generate(request)
        self._num_running: Callable[[], int] = lambda: server.engine.stats.num_running

    async def __aenter__(self) -> None:
        stream = await self._context.__aenter__()
        stream.follow(lambda: (stream.take(), None)[1])
        await eventually(lambda: self._num_running() == 1)

    async def __aexit__(self, *_: object) -> None:
        await self._context.__aexit__(None, None, None)
