"""Outputs reach their streams: all of them, in order, whenever they are handed over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import async_engine as module
from engine.assembly import Assembly, assemble_scripted
from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.scripted import Script
from engine.types import FinishType, RequestId
from tests.support.engines import Clock, PipelinedRunner, expected_tokens, make_core, make_request

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

CONFIG = EngineConfig(model=Path("unused"))
NUM_TOKENS = 12


def engine_over(core: EngineCore) -> AsyncEngine:
    scripted = assemble_scripted(CONFIG, Script())
    assembly = Assembly(core, scripted.tokenizer, scripted.model, scripted.config)
    return AsyncEngine(CONFIG, lambda: assembly)


class LoggingRunner(PipelinedRunner):
    """Says what the engine thread does with it; panics at the launch of that number."""

    def __init__(self, log: list[str], panic_at: int | None = None) -> None:
        super().__init__(Clock())
        self._log = log
        self._panic_at = panic_at
        self._num_launches = 0

    def launch(self, plan: SchedulerOutput) -> Any:
        if self._num_launches == self._panic_at:
            raise RuntimeError("device lost")
        self._num_launches += 1
        self._log.append("launch")
        return super().launch(plan)


def test_before_wait_is_called_between_the_launch_and_the_wait() -> None:
    log: list[str] = []
    runner = LoggingRunner(log)
    core, _ = make_core(runner=runner, clock=runner.clock)
    core.add(make_request("a", max_tokens=4))
    while core.has_work:
        in_flight = core.num_in_flight
        log.clear()
        core.step(lambda: log.append(f"wait with {len(runner.in_flight)}"))
        if in_flight == 0:
            assert log == ["launch"], "nothing to wait for yet"
            assert core.num_in_flight == 1
        elif "launch" in log:
            assert log == ["launch", "wait with 2"]
        else:
            assert log == ["wait with 1"]


@pytest.mark.parametrize("held_from", [1, 100])
async def test_outputs_are_held_until_the_next_launch_where_many_run(
    held_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []

    def noting(
        loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object
    ) -> None:
        if getattr(callback, "__name__", "") == "_deliver":
            log.append("deliver")
        call(loop, callback, *args)

    call = module._call
    monkeypatch.setattr(module, "_call", noting)
    monkeypatch.setattr(module, "_HELD_FROM", held_from)
    runner = LoggingRunner(log)
    core, _ = make_core(runner=runner, clock=runner.clock)
    engine = engine_over(core)
    await engine.start()
    async with engine.generate(make_request("a", max_tokens=NUM_TOKENS)) as stream:
        tokens = [token async for output in stream for token in output.token_ids]
    assert len(tokens) == NUM_TOKENS
    first = log.index("deliver")
    # With two in flight, what step N brought is there when N + 1 was launched.
    assert log[:first] == ["launch"] * (3 if held_from == 1 else 2)
    assert log.count("deliver") == log.count("launch"), "one for each step"
    await engine.shutdown(1.0)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("abort"), st.integers(0, 5)),
        st.tuples(st.just("add"), st.just(0)),
        st.tuples(st.just("turn"), st.integers(0, 3)),
    ),
    max_size=15,
)
exits = st.sampled_from(["end", "abort_all", "panic"])


@given(operations, st.sampled_from([1, 3, 100]), exits, st.integers(2, 40))
def test_every_output_is_delivered_once_and_in_order(
    moves: list[tuple[str, int]], held_from: int, way_out: str, panic_at: int
) -> None:
    async def play(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(module, "_HELD_FROM", held_from)
        runner = LoggingRunner([], panic_at if way_out == "panic" else None)
        core, _ = make_core(runner=runner, clock=runner.clock, num_blocks=400)
        engine = engine_over(core)
        await engine.start()
        readers: list[asyncio.Task[tuple[list[int], list[FinishType]]]] = []

        async def read(index: int) -> tuple[list[int], list[FinishType]]:
            tokens: list[int] = []
            ends: list[FinishType] = []
            request = make_request(f"r{index}", (1, index), max_tokens=NUM_TOKENS)
            async with engine.generate(request) as stream:
                async for output in stream:
                    tokens += output.token_ids
                    if output.finish is not None:
                        ends.append(output.finish.detail.type)
            return tokens, ends

        def add() -> None:
            readers.append(asyncio.create_task(read(len(readers))))

        add()
        for move, number in moves:
            if move == "add" and len(readers) < 10 and engine.state.value == "ready":
                add()
            elif move == "abort":
                engine.abort(RequestId(f"r{number}"))
            await asyncio.sleep(0.0005 * (number if move == "turn" else 0))
        if way_out == "abort_all":
            await engine.shutdown(0.0)
        async with asyncio.timeout(10):
            results = await asyncio.gather(*readers, return_exceptions=True)
        await engine.shutdown(1.0)
        for index, result in enumerate(results):
            if isinstance(result, BaseException):
                assert way_out != "end"  # it came when the engine had stopped
                continue
            tokens, ends = result
            assert len(ends) == 1
            assert tokens == expected_tokens((1, index), NUM_TOKENS)[: len(tokens)]
            if ends[0] is FinishType.MAX_TOKENS:
                assert len(tokens) == NUM_TOKENS
            elif way_out == "end":
                assert ends[0] is FinishType.CANCELLED

    with pytest.MonkeyPatch.context() as patch:
        asyncio.run(play(patch))


async def test_who_watches_is_told_of_each_step_and_of_nothing_else() -> None:
    seen: list[tuple[float, int]] = []
    runner = LoggingRunner([])
    core, _ = make_core(runner=runner, clock=runner.clock)
    engine = engine_over(core)
    engine.watch_steps(lambda step_s, num_tokens: seen.append((step_s, num_tokens)))
    await engine.start()
    async with engine.generate(make_request("a", max_tokens=NUM_TOKENS)) as stream:
        async for _ in stream:
            pass
    async with engine.generate(make_request("b", max_tokens=1000)) as stream:
        await stream.get()
    await engine.shutdown(1.0)
    assert sum(number for _, number in seen) >= NUM_TOKENS
    assert len(seen) <= engine.stats.num_steps
    assert all(step_s == pytest.approx(runner.step_s) for step_s, _ in seen)
