"""Cases of faults seen in other servers: requests that come, go, and are given up at the wrong
moment, and clients that do not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from engine.api import Engine, create_scripted_engine
from engine.config import EngineConfig
from engine.errors import InvalidRequestError
from engine.scripted import Script
from engine.types import FinishType, GenerationRequest, RequestId, SamplingParams
from tests.support.case_engine import ask, copy_model, make_core, prompt_tokens, run_alone
from tests.support.cases import case
from tests.support.engine_trial import EngineTrial, TrialConfig
from tests.support.engines import Collected, collect


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_model(tmp_path_factory.mktemp("case"))


NUM_REQUESTS = 24


def con_03_requests() -> list[GenerationRequest]:
    random = Random(11)
    return [
        ask(f"r{index}", prompt_tokens(random.randrange(1, 121), index), random.randrange(1, 41))
        for index in range(NUM_REQUESTS)
    ]


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Collected]:
    """What each of CON-03's requests gets when there is no other."""
    return run_alone(folder, con_03_requests())


@asynccontextmanager
async def running(script: Script, **config: int) -> AsyncIterator[Engine]:
    engine = create_scripted_engine(EngineConfig(model=Path("unused"), **config), script)  # type: ignore[arg-type]
    await engine.start()
    try:
        yield engine
    finally:
        await engine.shutdown(0.0)


def text_request(name: str, text: str, max_tokens: int | None) -> GenerationRequest:
    """A request for the scripted engine, whose tokens are bytes."""
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
    return GenerationRequest(RequestId(name), tuple(text.encode()), params)


async def read_text(engine: Engine, request: GenerationRequest) -> str:
    async with engine.generate(request) as stream:
        return "".join([output.text async for output in stream])


@pytest.mark.anyio
async def test_con_01_an_id_that_is_in_use_is_refused() -> None:
    """Whoever has it keeps its own stream; afterwards the id is free again. (The server gives
    every request an id of its own, so that two clients never meet here.)"""
    played = case("CON-01")
    first, second = played["expect"]["texts"]
    bodies = [item["json"]["messages"][0]["content"] for item in played["input"]["parallel"]]
    texts = dict(zip(bodies, (first, second), strict=True))
    script = Script(answer=lambda prompt: texts[prompt], token_chars=1, token_s=0.02)
    async with running(script) as engine:
        async with engine.generate(text_request("same", bodies[0], 20)) as stream:
            begun = await stream.get()
            assert begun is not None
            with pytest.raises(InvalidRequestError, match="in use"):
                await read_text(engine, text_request("same", bodies[1], 20))
            rest = "".join([output.text async for output in stream])
        assert rest != "", "it was in use when the other one came"
        assert begun.text + rest == first
        assert await read_text(engine, text_request("same", bodies[1], 20)) == second
        stats = engine.stats
        assert (stats.num_running, stats.num_waiting) == (played["expect"]["running_after"], 0)


@pytest.mark.parametrize("enable_prefix_cache", [True, False])
@pytest.mark.parametrize("budget", [16, 256])
@pytest.mark.parametrize("pool", [512, 160])
def test_con_03_who_comes_and_goes_changes_nobody_elses_answer(
    folder: Path, alone: dict[str, Collected], enable_prefix_cache: bool, budget: int, pool: int
) -> None:
    requests = con_03_requests()
    random = Random(12)
    arrivals = sorted(random.randrange(120) for _ in requests)
    aborts = {
        f"r{index}": arrivals[index] + random.randrange(1, 30)
        for index in random.sample(range(NUM_REQUESTS), 6)
    }
    core = make_core(
        folder,
        enable_prefix_cache=enable_prefix_cache,
        max_num_batched_tokens=budget,
        kv_cache_tokens=pool,
        speculation="auto",
    )
    got: dict[str, Collected] = {}
    step = 0
    while step <= max(arrivals) or core.has_work:
        for request, at in zip(requests, arrivals, strict=True):
            if at == step:
                core.add(request)
        for name, at in aborts.items():
            if at == step:
                for output in core.abort(RequestId(name), FinishType.CANCELLED):
                    collect(got, output)
        for output in core.step():
            collect(got, output)
        core.check()
        step += 1
    num_cut = 0
    for request in requests:
        name = request.request_id
        expected = alone[name]
        if got[name].finish_type == "cancelled":
            num_cut += 1
            count = len(got[name].token_ids)
            assert got[name].token_ids == expected.token_ids[:count]
            assert expected.text.startswith(got[name].text)
        else:
            assert got[name].token_ids == expected.token_ids
            assert got[name].text == expected.text
    assert 1 <= num_cut <= 6
    assert core.stats().used_blocks == 0


@pytest.mark.anyio
async def test_abt_01_an_answer_that_nobody_reads_ends_soon() -> None:
    expect = case("ABT-01")["expect"]
    script = Script(answer=lambda _: "x" * 8000, token_chars=4, token_s=0.02)
    async with running(script) as engine:
        before = engine.stats.num_aborted
        async with engine.generate(text_request("r", "hi", 2000)) as stream:
            for _ in range(3):
                await stream.get()
        steps = engine.stats.num_steps
        async with asyncio.timeout(10):  # a later request is answered meanwhile
            await read_text(engine, text_request("next", "hi", 1))
        stats = engine.stats
        assert stats.num_aborted == before + 1
        assert stats.num_steps - steps <= 5
        assert (stats.num_running, stats.num_waiting, stats.used_blocks) == (
            expect["running"],
            expect["waiting"],
            expect["blocks_in_use"],
        )
        assert stats.free_blocks + stats.cached_blocks == stats.total_blocks
        assert stats.generated_tokens < expect["sampled_tokens_less_than"]


@pytest.mark.parametrize("seed", range(200))
def test_abt_04_aborts_at_any_moment_end_a_request_once(seed: int) -> None:
    """Before it was scheduled, between its chunks, in the step that ends it, twice, and for an id
    that was never seen; then one more request finds everything in order."""
    random = Random(seed)
    trial = EngineTrial(TrialConfig(num_blocks=24, max_num_batched_tokens=random.choice((7, 16))))
    for _ in range(random.randrange(5, 25)):
        match random.randrange(5):
            case 0 | 1:
                trial.submit(random.randrange(4), random.randrange(1, 30), max_tokens=3)
                if random.random() < 0.3:
                    trial.abort(f"r{len(trial.requests) - 1}")
            case 2 | 3:
                trial.step(random.randrange(1, 4))
            case _ if trial.requests:
                name = random.choice(list(trial.requests))
                trial.abort(name)
                trial.abort(name)
        trial.abort("never seen")
        trial.check()
    trial.submit(0, 9, max_tokens=5)
    trial.drain()
    assert trial.collected[f"r{len(trial.requests) - 1}"].finish_type == "max_tokens"


@pytest.mark.anyio
async def test_abt_04_an_abort_that_comes_with_the_end() -> None:
    """The engine has ended the request, the loop does not know yet: one end, and no error."""
    script = Script(answer=lambda _: "abc", token_chars=1)
    async with running(script) as engine:
        for index in range(50):
            async with engine.generate(text_request(f"r{index}", "hi", None)) as stream:
                outputs = []
                async for output in stream:
                    outputs.append(output)
                    engine.abort(RequestId(f"r{index}"))
                    engine.abort(RequestId(f"r{index}"))
            ends = [output.finish for output in outputs if output.finish is not None]
            assert len(ends) == 1
            assert ends[0].detail.type in (FinishType.EOS, FinishType.CANCELLED)
        assert await read_text(engine, text_request("last", "hi", None)) == "abc"
        assert engine.stats.used_blocks == 0


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_mem_01_a_reader_that_stops_is_bounded_and_hurts_nobody() -> None:
    """A kilobyte a token, and nobody who takes it. (Where tokens come with no pause at all, many
    steps' deltas reach the loop before any reader can run, and the bound meets readers, too.)"""
    # A quarter of a second of steps: the loop may stand still that long before a reader is slow.
    limit = 256 * 1024
    script = Script(answer=lambda _: "x" * 1_000_000, token_chars=1000, token_s=0.001)
    async with running(
        script, max_pending_chars=limit, max_model_len=8000, kv_cache_tokens=65_536
    ) as engine:
        slow_request = text_request("slow", "hi", None)
        async with engine.generate(slow_request) as slow:
            for _ in range(3):
                await slow.get()
            async with engine.generate(text_request("reader", "hi", 600)) as reader:
                num_chars, most = 0, 0
                async for output in reader:
                    num_chars += len(output.text)
                    most = max(most, slow.pending_chars)
            assert num_chars == 600_000
            assert slow.finish is not None
            assert slow.finish.detail.type is FinishType.SLOW_CLIENT
            # What steps did until the abort reached the thread comes on top.
            assert limit < slow.pending_chars <= most <= 2 * limit
            assert slow.finish.usage.completion_tokens < 500
        assert engine.stats.used_blocks == 0
