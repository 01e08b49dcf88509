"""Requests whose prompts are being tokenized when the server is to end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from engine.api import Script
from server.service.chat_template import ChatTemplate
from server.service.limits import ServiceLimits
from tests.server.service.harness import PATIENCE_S, Server, eventually, serving
from tests.server.service.request_books import ROUTES, request_body

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

ONE_THREAD = ServiceLimits(tokenizer_threads=1)
ANSWER = Script(answer=lambda _prompt: "an answer")


class HeldTemplate:
    """Every prompt waits in its thread until the gate is open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = threading.Event()
        self.num_begun = 0
        encode: Callable[..., Any] = ChatTemplate.encode

        def held(template: ChatTemplate, *args: Any, **options: Any) -> Any:
            self.num_begun += 1
            assert self.gate.wait(PATIENCE_S), "nobody opened the gate"
            return encode(template, *args, **options)

        monkeypatch.setattr(ChatTemplate, "encode", held)


async def asked(
    server: Server, held: HeldTemplate, route: str, num: int
) -> list[asyncio.Task[httpx.Response]]:
    """So many requests, one of which is being tokenized, while the others wait for the thread."""
    tasks = [
        asyncio.create_task(
            server.http.post(
                ROUTES[route],
                json=request_body(route, stream=False, n=1),
                headers={"connection": "close"},
            )
        )
        for _ in range(num)
    ]
    await eventually(lambda: held.num_begun == 1)
    await eventually(lambda: server.service.admission.num_preparing == num)
    return tasks


@pytest.mark.parametrize("route", ["chat", "response"])
async def test_they_are_answered_within_the_grace(
    route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldTemplate(monkeypatch)
    async with serving(ANSWER, limits=ONE_THREAD) as server:
        tasks = await asked(server, held, route, 2)
        ending = asyncio.create_task(server.service.shutdown(PATIENCE_S))
        await eventually(lambda: not server.service.admission.is_ready)
        held.gate.set()
        for reply in await asyncio.gather(*tasks):
            assert reply.status_code == 200, reply.text
            assert "an answer" in reply.text
        await ending


@pytest.mark.parametrize("route", ["chat", "response"])
async def test_they_are_told_so_where_the_grace_is_over(
    route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldTemplate(monkeypatch)
    async with serving(ANSWER, limits=ONE_THREAD) as server:
        tasks = await asked(server, held, route, 3)
        await server.service.shutdown(0)
        held.gate.set()
        for reply in await asyncio.gather(*tasks):
            assert reply.status_code == 503, reply.text
            assert reply.json()["error"]["code"] == "shutting_down"
            assert reply.headers["retry-after"] == "5"
        assert server.service.admission.num_preparing == 0


async def test_a_client_that_leaves_while_the_server_ends_is_no_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = HeldTemplate(monkeypatch)
    async with serving(ANSWER, limits=ONE_THREAD) as server:
        tasks = await asked(server, held, "chat", 2)
        for task in tasks:
            task.cancel()
        await eventually(lambda: server.service.admission.num_preparing == 0)
        held.gate.set()
        await server.service.shutdown(0)
