from __future__ import annotations

import asyncio
import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.assembly import Assembly, assemble_scripted
from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.errors import EngineDeadError, ModelLoadError
from engine.execution.runner import StepResult, SynchronousRunner
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.scripted import Script
from engine.types import EngineState, FinishType, GenerationRequest, RequestId, SamplingParams
from tests.support.engines import (
    Clock,
    CountingRunner,
    PipelinedRunner,
    expected_tokens,
    make_core,
    make_request,
)

pytestmark = pytest.mark.anyio

CONFIG = EngineConfig(model=Path("unused"), max_pending_chars=1000)


def assembly_with(core: EngineCore) -> Assembly:
    scripted = assemble_scripted(CONFIG, Script())
    return Assembly(core, scripted.tokenizer, scripted.model, scripted.config)


def endless(name: str) -> GenerationRequest:
    return GenerationRequest(
        RequestId(name), (1, 2, 3), SamplingParams(temperature=0.0, ignore_eos=True)
    )


class Panic(BaseException):
    """As libraries in Rust raise one."""


@pytest.mark.parametrize("kind", [RuntimeError, Panic])
async def test_a_failure_of_the_thread_reaches_every_stream(kind: type[BaseException]) -> None:
    class Broken(SynchronousRunner):
        calls = 0

        def execute(self, plan: SchedulerOutput) -> StepResult:
            self.calls += 1
            raise kind("device lost at /secret/path")

        def forget(self, request_id: RequestId) -> None:
            pass

    core, _ = make_core(runner=Broken())
    engine = AsyncEngine(CONFIG, lambda: assembly_with(core))
    await engine.start()
    failed = asyncio.create_task(engine.wait_failed())
    async with engine.generate(endless("a")) as first, engine.generate(endless("b")) as second:
        for stream in (first, second):
            outputs = [output async for output in stream]
            finish = outputs[-1].finish
            assert finish is not None
            assert finish.detail.type is FinishType.ERROR
            assert finish.message is not None
            assert "secret" not in finish.message
    assert "restarted" in await failed
    assert engine.state is EngineState.DEAD
    with pytest.raises(EngineDeadError):
        async with engine.generate(endless("c")):
            pytest.fail("accepted")
    await engine.shutdown(0.0)
    assert engine.state is EngineState.DEAD


async def test_without_work_the_runner_is_given_time_until_it_has_no_use_for_it() -> None:
    calls: queue.SimpleQueue[int] = queue.SimpleQueue()

    class PutsOff(CountingRunner):
        num_left = 3

        def idle(self) -> bool:
            assert not core.has_work
            left, self.num_left = self.num_left, max(0, self.num_left - 1)
            calls.put(left)
            return left > 0

    async def next_call() -> int:
        return await asyncio.to_thread(calls.get, timeout=10.0)

    runner = PutsOff(Clock())
    core, _ = make_core(runner=runner)
    engine = AsyncEngine(CONFIG, lambda: assembly_with(core))
    await engine.start()
    assert [await next_call() for _ in range(4)] == [3, 2, 1, 0]
    async with engine.generate(make_request("r", (1, 2), max_tokens=3)) as stream:
        runner.num_left = 2
        tokens = [token async for output in stream for token in output.token_ids]
    assert tokens == expected_tokens((1, 2), 3)
    while (left := await next_call()) == 0:
        pass  # it may have been woken once more before
    assert [left, await next_call(), await next_call()] == [2, 1, 0]
    await engine.shutdown(0.0)


async def test_steps_in_flight_are_delivered_to_their_readers() -> None:
    clock = Clock()
    runner = PipelinedRunner(clock)
    core, _ = make_core(runner=runner, clock=clock, num_blocks=200)
    engine = AsyncEngine(CONFIG, lambda: assembly_with(core))
    await engine.start()

    async def read(index: int) -> list[int]:
        async with engine.generate(make_request(f"r{index}", (1, index), max_tokens=20)) as stream:
            return [token async for output in stream for token in output.token_ids]

    answers = await asyncio.gather(*(read(index) for index in range(8)))
    assert answers == [expected_tokens((1, index), 20) for index in range(8)]
    assert runner.max_in_flight == 2
    async with engine.generate(endless("left")):
        pass
    await engine.shutdown(5.0)
    assert engine.state is EngineState.STOPPED


async def test_a_model_that_does_not_load_is_raised_by_start() -> None:
    def assemble() -> Assembly:
        raise ModelLoadError("model.safetensors is missing")

    engine = AsyncEngine(CONFIG, assemble)
    with pytest.raises(ModelLoadError, match="safetensors is missing"):
        await engine.start()
    await engine.shutdown(0.0)


async def test_a_panic_while_loading_is_raised_by_start_as_an_error() -> None:
    def assemble() -> Assembly:
        raise Panic("index out of bounds")

    engine = AsyncEngine(CONFIG, assemble)
    with pytest.raises(ModelLoadError, match="cannot be loaded: index out of bounds"):
        await engine.start()
    await engine.shutdown(0.0)


async def test_a_reader_that_never_reads_is_ended() -> None:
    config = EngineConfig(model=Path("unused"), max_pending_chars=1000)
    script = Script(answer=lambda _: "x" * 20_000, token_chars=100, token_s=0.001)
    engine = AsyncEngine(config, lambda: assemble_scripted(config, script))
    await engine.start()
    async with engine.generate(endless("slow")) as stream:
        while stream.finish is None:  # another client that reads keeps the loop busy meanwhile
            request = make_request(f"other{stream.pending_chars}", 3, max_tokens=1)
            async with engine.generate(request) as other:
                async for _ in other:
                    pass
        assert stream.finish.detail.type is FinishType.SLOW_CLIENT
        assert stream.pending_chars < 20_000
    await engine.shutdown(0.0)


async def test_the_inbox_of_a_stopped_engine_is_not_forgotten() -> None:
    """A request that was accepted but never reached the thread still ends."""
    engine = AsyncEngine(CONFIG, lambda: assemble_scripted(CONFIG, Script()))
    await engine.start()
    async with engine.generate(endless("a")) as stream:
        await engine.shutdown(0.0)
        assert stream.finish is not None
        assert stream.finish.detail.type is FinishType.SHUTDOWN


@pytest.mark.parametrize("fails", [False, True])
async def test_the_thread_is_gone_when_the_engine_has_ended(fails: bool) -> None:
    """A process that exits while the thread still frees the model's tensors is aborted."""

    class SlowToEnd(AsyncEngine):
        def _run(self, *args: Any) -> None:
            super()._run(*args)
            threading.Event().wait(0.05)

    def assemble() -> Assembly:
        if fails:
            raise ModelLoadError("broken")
        return assemble_scripted(CONFIG, Script())

    engine = SlowToEnd(CONFIG, assemble)
    if fails:
        with pytest.raises(ModelLoadError):
            await engine.start()
    else:
        await engine.start()
        await engine.shutdown(0.0)
    assert engine._thread is not None
    assert not engine._thread.is_alive()


async def test_a_thread_that_does_not_go_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    may_go = threading.Event()

    class NeverEnds(AsyncEngine):
        def _run(self, *args: Any) -> None:
            super()._run(*args)
            may_go.wait()

    def assemble() -> Assembly:
        raise ModelLoadError("broken")

    monkeypatch.setattr("engine.async_engine.ABORT_TIMEOUT_S", 0.01)
    stuck = NeverEnds(CONFIG, assemble)
    with pytest.raises(ModelLoadError):
        await stuck.start()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "The engine thread was not gone after 0.01 s."
    ]
    may_go.set()
    assert stuck._thread is not None
    stuck._thread.join(5.0)
    assert not stuck._thread.is_alive()
