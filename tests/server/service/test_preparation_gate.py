"""Requests that arrive together reach the engine one after the other, not all at the end."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from engine.api import GenerationRequest, OutputStream
from server.service.limits import ServiceLimits
from server.service.preparation_gate import PreparationGate
from tests.server.service.harness import serving

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


async def test_so_many_go_through_at_once_and_in_their_order() -> None:
    gate = PreparationGate(num_threads=1)
    inside: list[int] = []
    most = 0
    order: list[int] = []
    opened = asyncio.Event()

    async def go(number: int, num_bytes: int) -> None:
        nonlocal most
        async with gate.place(num_bytes):
            order.append(number)
            inside.append(number)
            most = max(most, len(inside))
            await opened.wait()
            inside.remove(number)

    tasks = [asyncio.create_task(go(number, 100)) for number in range(9)]
    large = [asyncio.create_task(go(number, 1 << 20)) for number in range(100, 104)]
    await asyncio.sleep(0)
    assert order == [0, 1, 2, 3, 100, 101], "large ones do not take the places of small ones"
    opened.set()
    await asyncio.gather(*tasks, *large)
    assert [number for number in order if number < 100] == list(range(9))
    assert most == 6


async def test_the_engine_has_the_first_request_before_the_last_is_tokenized(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = ServiceLimits(tokenizer_threads=1)
    async with serving(limits=limits) as server:
        prompts = server.service.generation.prompts
        began: list[str] = []
        num_begun_at_submit: list[int] = []
        in_pool, generate = prompts.in_pool, server.engine.generate

        async def counted(*args: Any) -> Any:
            began.append("")
            return await in_pool(*args)

        def noted(request: GenerationRequest) -> AbstractAsyncContextManager[OutputStream]:
            num_begun_at_submit.append(len(began))
            return generate(request)

        monkeypatch.setattr(prompts, "in_pool", counted)
        monkeypatch.setattr(server.engine, "generate", noted)
        replies = await asyncio.gather(*(server.chat(max_tokens=1) for _ in range(24)))
    assert [reply.status_code for reply in replies] == [200] * 24
    assert num_begun_at_submit[0] <= 8
