"""What every `Engine` must do, run over the scripted engine and over a real tiny model."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.api import (
    Engine,
    EngineConfig,
    EngineState,
    FinishType,
    GenerationRequest,
    InvalidRequestError,
    OutputStream,
    OverloadedError,
    PromptTooLongError,
    RequestId,
    RequestOutput,
    SamplingParams,
    Script,
    ShuttingDownError,
    StreamBusyError,
    create_engine,
    create_scripted_engine,
)
from tests.support.tiny_models import build_tiny_model

pytestmark = pytest.mark.anyio

WINDOW = 256


@pytest.fixture(scope="module")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("llama"), "llama")


@pytest.fixture(params=["scripted", "model"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(kind: str, tiny_llama: Path) -> Path:
    return tiny_llama if kind == "model" else Path("unused")


@asynccontextmanager
async def running(kind: str, folder: Path, **limits: int) -> AsyncIterator[Engine]:
    config = EngineConfig(
        model=folder,
        served_name="tiny",
        max_model_len=WINDOW,
        kv_cache_tokens=4096,
        max_num_seqs=limits.get("max_num_seqs", 16),
        max_queued_requests=limits.get("max_queued_requests", 64),
        max_num_batched_tokens=128,
    )
    engine = (
        create_engine(config)
        if kind == "model"
        else create_scripted_engine(
            config, Script(answer=lambda _: "abcdefgh" * 200, token_s=0.0005)
        )
    )
    await engine.start()
    try:
        yield engine
    finally:
        await engine.shutdown(0.0)


def make(name: str, *, prompt: int = 12, max_tokens: int | None = 10) -> GenerationRequest:
    """Greedy, never ended by the model."""
    return GenerationRequest(
        RequestId(name),
        tuple((len(name) * 7 + i * 3) % 200 for i in range(prompt)),
        SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True),
    )


async def read(stream: OutputStream) -> list[RequestOutput]:
    return [output async for output in stream]


async def settle(engine: Engine) -> None:
    """Until the engine has nothing to do; the test's timeout bounds it."""
    while True:  # the first probe also lets the thread see what was sent before
        async with engine.generate(make("probe", max_tokens=1)) as stream:
            await read(stream)
        if not (engine.stats.num_running or engine.stats.used_blocks):
            return


async def test_one_terminal_output_and_every_token_once(kind: str, folder: Path) -> None:
    async with running(kind, folder) as engine:
        assert engine.state is EngineState.READY
        async with engine.generate(make("r")) as stream:
            outputs = await read(stream)
            assert await stream.get() is None
        assert [output.finish is not None for output in outputs] == [False] * (len(outputs) - 1) + [
            True
        ]
        finish = outputs[-1].finish
        assert finish is not None
        assert finish.detail.type is FinishType.MAX_TOKENS
        assert finish.reason == "length"
        assert (finish.usage.prompt_tokens, finish.usage.completion_tokens) == (12, 10)
        tokens = [token for output in outputs for token in output.token_ids]
        assert len(tokens) == 10
        text = "".join(output.text for output in outputs)
        whole = b"".join(engine.tokenizer.token_bytes(token) for token in tokens)
        # The stream drops an unfinished character at the end, a whole decode replaces it.
        assert whole.decode(errors="replace").rstrip("\ufffd").startswith(text.rstrip("\ufffd"))
        assert finish.timing.ttft_s is not None
        assert 0 <= finish.timing.ttft_s <= finish.timing.total_s


async def test_streams_of_all_lengths_run_together(kind: str, folder: Path) -> None:
    """Deltas interleave, and a late short request overtakes the longest."""
    async with running(kind, folder) as engine:
        order: list[str] = []
        started = asyncio.Event()

        async def one(name: str, max_tokens: int) -> None:
            async with engine.generate(make(name, max_tokens=max_tokens)) as stream:
                async for output in stream:
                    if output.token_ids:
                        order.append(name)
                        started.set()

        async with asyncio.TaskGroup() as tasks:
            for index in range(8):
                tasks.create_task(one(f"r{index}", 20 + 20 * index))
            await started.wait()
            tasks.create_task(one("late", 3))
        assert order.index("late") < len(order) - 1 - order[::-1].index("r7")
        assert len(set(order[:16])) > 1, "one after the other"


async def test_leaving_the_block_frees_the_blocks(kind: str, folder: Path) -> None:
    async with running(kind, folder) as engine:
        async with engine.generate(make("r", max_tokens=None)) as stream:
            await stream.get()
        await settle(engine)
        assert engine.stats.num_aborted == 1
        stats = engine.stats
        assert stats.free_blocks + stats.cached_blocks == stats.total_blocks


async def test_an_exception_in_the_block_aborts_too(kind: str, folder: Path) -> None:
    async with running(kind, folder) as engine:
        with pytest.raises(RuntimeError, match="reader broke"):
            async with engine.generate(make("r", max_tokens=None)):
                raise RuntimeError("reader broke")
        await settle(engine)
        assert engine.stats.num_aborted == 1


async def test_a_cancel_is_the_end_and_is_named(kind: str, folder: Path) -> None:
    async with running(kind, folder) as engine:
        async with engine.generate(make("r", max_tokens=None)) as stream:
            await stream.get()
            engine.abort(RequestId("r"))
            engine.abort(RequestId("r"))
            engine.abort(RequestId("nobody"))
            outputs = await read(stream)
        finish = outputs[-1].finish
        assert finish is not None
        assert (finish.detail.type, finish.reason) == (FinishType.CANCELLED, "abort")


async def test_the_window_is_the_last_limit(kind: str, folder: Path) -> None:
    async with running(kind, folder) as engine:
        async with engine.generate(make("r", prompt=WINDOW - 3, max_tokens=50)) as stream:
            outputs = await read(stream)
        finish = outputs[-1].finish
        assert finish is not None
        assert finish.detail.type is FinishType.CONTEXT_WINDOW
        assert finish.usage.completion_tokens == 3


@pytest.mark.parametrize("size", [WINDOW, WINDOW + 100])
async def test_a_prompt_without_room_is_refused_with_its_numbers(
    kind: str, folder: Path, size: int
) -> None:
    async with running(kind, folder) as engine:
        with pytest.raises(PromptTooLongError, match=f"{size} tokens.*{WINDOW} tokens"):
            async with engine.generate(make("r", prompt=size)):
                pytest.fail("accepted")


async def test_bad_requests_are_refused_and_hurt_nobody(kind: str, folder: Path) -> None:
    async with running(kind, folder) as engine:
        async with engine.generate(make("good", max_tokens=30)) as stream:
            with pytest.raises(InvalidRequestError, match="in use"):
                async with engine.generate(make("good")):
                    pytest.fail("accepted")
            with pytest.raises(InvalidRequestError, match="empty"):
                async with engine.generate(make("none", prompt=0)):
                    pytest.fail("accepted")
            outside = GenerationRequest(
                RequestId("outside"), (engine.model.vocab_size,), SamplingParams()
            )
            with pytest.raises(InvalidRequestError, match="outside the vocabulary"):
                async with engine.generate(outside):
                    pytest.fail("accepted")
            outputs = await read(stream)
        assert sum(len(output.token_ids) for output in outputs) == 30


async def test_a_full_queue_says_no_at_once(kind: str, folder: Path) -> None:
    async with (
        running(kind, folder, max_num_seqs=1, max_queued_requests=1) as engine,
        engine.generate(make("a", max_tokens=None)),
        engine.generate(make("b", max_tokens=None)),
    ):
        with pytest.raises(OverloadedError, match="limit"):
            async with engine.generate(make("c")):
                pytest.fail("accepted")
        assert engine.queue_position(RequestId("b")) in (0, 1)
        assert engine.queue_position(RequestId("c")) is None


async def test_who_has_left_or_is_the_server_itself_stands_in_no_line(
    kind: str, folder: Path
) -> None:
    own = dataclasses.replace(make("own"), forced_token_ids=(5, 6))
    async with (
        running(kind, folder, max_num_seqs=1) as engine,
        engine.generate(make("a", max_tokens=None)) as first,
    ):
        await first.get()
        async with (
            engine.generate(own),
            engine.generate(make("left")) as left,
            engine.generate(make("last")),
        ):
            assert engine.queue_position(RequestId("own")) is None
            assert engine.queue_position(RequestId("left")) == 0
            assert engine.queue_position(RequestId("last")) == 1
            engine.abort(left.request_id)
            assert engine.queue_position(RequestId("last")) == 0


async def test_two_readers_on_one_stream_are_a_bug(kind: str, folder: Path) -> None:
    async with (
        running(kind, folder, max_num_seqs=1) as engine,
        engine.generate(make("first", max_tokens=None)),
        engine.generate(make("waits")) as stream,
    ):
        reader = asyncio.create_task(stream.get())
        await asyncio.sleep(0)
        with pytest.raises(StreamBusyError):
            await stream.get()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader


async def test_a_reader_that_looks_away_gets_everything_merged(kind: str, folder: Path) -> None:
    async with running(kind, folder) as engine:
        async with engine.generate(make("slow", max_tokens=40)) as slow:
            async with engine.generate(make("fast", max_tokens=60)) as fast:
                await read(fast)
            outputs = await read(slow)
        assert len(outputs) == 1
        assert len(outputs[0].token_ids) == 40


async def test_shutdown_lets_short_answers_end_and_names_the_cut_ones(
    kind: str, folder: Path
) -> None:
    async with running(kind, folder) as engine, engine.generate(make("r", max_tokens=5)) as stream:
        await asyncio.gather(engine.shutdown(30.0), read(stream))
        assert stream.finish is not None
        assert stream.finish.detail.type is FinishType.MAX_TOKENS
    async with (
        running(kind, folder) as engine,
        engine.generate(make("r", prompt=2, max_tokens=None)) as stream,
        engine.generate(make("s", prompt=2, max_tokens=None)) as other,
    ):
        await engine.shutdown(0.0)
        for ended in (stream, other):
            assert ended.finish is not None
            assert ended.finish.detail.type in (FinishType.SHUTDOWN, FinishType.CONTEXT_WINDOW)
        assert engine.state is EngineState.STOPPED
        with pytest.raises(ShuttingDownError):
            async with engine.generate(make("late")):
                pytest.fail("accepted")
        await engine.shutdown(0.0)


async def test_a_seed_gives_the_same_answer_in_any_company(kind: str, folder: Path) -> None:
    async with running(kind, folder) as engine:

        async def sampled(name: str, seed: int | None) -> list[int]:
            request = GenerationRequest(
                RequestId(name),
                tuple(range(20)),
                SamplingParams(temperature=1.0, seed=seed, max_tokens=16, ignore_eos=True),
            )
            async with engine.generate(request) as stream:
                return [token for output in await read(stream) for token in output.token_ids]

        alone = await sampled("alone", 42)
        crowd = await asyncio.gather(
            *(sampled(f"r{index}", 42 if index == 3 else index) for index in range(8))
        )
        assert crowd[3] == alone
        if kind == "model":
            assert len({tuple(tokens) for tokens in crowd}) > 1


async def test_logprobs_for_each_token_where_asked(kind: str, folder: Path) -> None:
    async with running(kind, folder) as engine:
        for wanted in (None, 0, 2):
            request = make("r")
            params = dataclasses.replace(request.params, logprobs=wanted)
            async with engine.generate(dataclasses.replace(request, params=params)) as stream:
                outputs = await read(stream)
            token_ids = [token_id for output in outputs for token_id in output.token_ids]
            told = [one for output in outputs for one in output.logprobs]
            assert [one.token_id for one in told] == (token_ids if wanted is not None else [])
            assert all(-9999.0 <= one.logprob <= 0.0 for one in told)
            assert all(len(one.top) <= (wanted or 0) for one in told)
            if wanted:
                assert all(one.top[0] == (one.token_id, one.logprob) for one in told), "greedy"


@pytest.mark.parametrize("field", ["logit_bias", "stop_token_ids"])
async def test_ids_outside_the_vocabulary_are_refused_at_once(
    kind: str, folder: Path, field: str
) -> None:
    async with running(kind, folder) as engine:
        outside = engine.model.vocab_size
        for token_id in (-1, outside):
            value = ((token_id, 1.0),) if field == "logit_bias" else (token_id,)
            params = SamplingParams(**{field: value})  # type: ignore[arg-type]
            request = dataclasses.replace(make("r"), params=params)
            with pytest.raises(InvalidRequestError, match=str(token_id)) as refused:
                await engine.generate(request).__aenter__()
            assert refused.value.param == field
        async with engine.generate(make("r")) as stream:
            await read(stream)
