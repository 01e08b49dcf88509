"""What the server says before and after the time in which it answers; and its metrics."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from engine.api import (
    EngineConfig,
    Finish,
    FinishDetail,
    FinishType,
    GenerationRequest,
    OutputStream,
    RequestId,
    SamplingParams,
    Script,
    Timing,
    Usage,
    create_scripted_engine,
)
from server.service.admission import Admission
from server.service.auth import Access, Auth
from server.service.errors import ModelUnavailableError, QueueFullError, ShuttingDownError
from server.service.key_store import KeyFile, KeyStore
from server.service.limits import ServiceLimits
from server.service.metrics import Metrics
from server.service.request_terms import BATCH
from tests.server.service.harness import SECRET, Server, eventually, serving
from tests.server.service.request_books import ENDLESS, ROUTES, Books, raw_request, request_body

pytestmark = pytest.mark.anyio


def _endless(name: str) -> GenerationRequest:
    return GenerationRequest(RequestId(name), (1, 2, 3), SamplingParams(ignore_eos=True))


async def test_states() -> None:
    engine = create_scripted_engine(EngineConfig(Path("scripted")))
    admission = Admission(engine)
    assert admission.state == "starting"
    with pytest.raises(ModelUnavailableError) as loading:
        admission.check()
    assert loading.value.retry_after_ms
    await engine.start()
    admission.check()
    assert admission.is_ready
    admission.drain()
    assert (admission.state, admission.is_ready) == ("draining", False)
    with pytest.raises(ShuttingDownError):
        admission.check()
    admission.check_engine()
    await engine.shutdown(0)
    with pytest.raises(ShuttingDownError):
        admission.check_engine()
    assert admission.state == "stopped"


async def test_a_new_answer_needs_room_in_the_engine() -> None:
    """Counted on the loop: requests that no step has seen yet take room already."""
    engine = create_scripted_engine(
        EngineConfig(Path("scripted"), max_num_seqs=1, max_queued_requests=1), Script(token_s=0.01)
    )
    admission = Admission(engine)
    with pytest.raises(ModelUnavailableError):
        admission.enter_run("somebody").close()
    await engine.start()
    async with engine.generate(_endless("a")):
        admission.enter_run("somebody").close()
        async with engine.generate(_endless("b")) as second:
            with pytest.raises(QueueFullError) as full:
                admission.enter_run("somebody").close()
            assert full.value.retryable
            assert full.value.retry_after_ms
            admission.check()
            engine.abort(second.request_id)
            async for _ in second:
                pass
            admission.enter_run("somebody").close()
    await engine.shutdown(0)


async def test_metrics() -> None:
    metrics = Metrics(create_scripted_engine(EngineConfig(Path("scripted"))))
    end = FinishDetail(FinishType.EOS)
    metrics.finished(Finish(end, Usage(10, 4, 6), Timing(0.1, 0.2, 1.0)))
    lines = metrics.render().decode().splitlines()
    for line in (
        'lectern_generations_finished_total{detail="eos"} 1.0',
        "lectern_prompt_tokens_total 10.0",
        "lectern_prompt_cached_tokens_total 6.0",
        "lectern_completion_tokens_total 4.0",
        'lectern_time_to_first_token_seconds_bucket{le="0.25"} 1.0',
        "lectern_running_sequences 0.0",
    ):
        assert line in lines


@asynccontextmanager
async def _streaming(server: Server, num: int) -> AsyncIterator[None]:
    """That many answers of one request, which never end."""
    running = server.engine.stats.num_running
    rates = server.service.admission.rates
    held = rates.num_running("anonymous")
    connection = await raw_request(server, ROUTES["chat"], request_body("chat", stream=True, n=num))
    try:
        await eventually(lambda: server.engine.stats.num_running == running + num)
        yield
    finally:
        connection.close()
        await eventually(lambda: rates.num_running("anonymous") == held)


@pytest.mark.one_loop
@pytest.mark.parametrize("stream", [True, False])
async def test_one_caller_s_answers_are_counted_over_all_routes(stream: bool) -> None:
    limits = ServiceLimits(max_concurrent_per_user=3)
    async with serving(ENDLESS, limits=limits) as server, _streaming(server, 2):
        for route in ROUTES:
            n = 1 if route == "response" else 2
            async with _streaming(server, 1) if route == "response" else _nothing():
                body = request_body(route, stream=stream, n=n)
                reply = await server.http.post(ROUTES[route], json=body)
            assert reply.status_code == 429
            assert reply.headers["content-type"] == "application/json"
            assert int(reply.headers["retry-after"]) >= 1
            error = reply.json()["error"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        never = await server.chat(stream=stream, n=4)
        assert (never.status_code, never.json()["error"]["param"]) == (400, "n")
        assert (await server.chat(stream=stream, max_tokens=2)).status_code == 200


@pytest.mark.one_loop
async def test_what_only_the_tokenizer_does_is_counted_too() -> None:
    """But it needs no place in the engine."""
    limits = ServiceLimits(max_concurrent_per_user=2)
    async with serving(ENDLESS, limits=limits, max_num_seqs=1, max_queued_requests=1) as server:
        bodies = {"/tokenize": {"prompt": "abc"}, "/detokenize": {"tokens": [97]}}
        async with _streaming(server, 1):
            for path, body in bodies.items():
                assert (await server.http.post(path, json=body)).status_code == 200
            ticket = server.service.admission.enter("anonymous")
            for path, body in bodies.items():
                refused = await server.http.post(path, json=body)
                assert refused.json()["error"]["code"] == "rate_limit_exceeded"
            ticket.close()
        await server.until_idle()
        async with server.socket() as socket:  # the engine is full of another's
            await socket.hello()
            for number in (1, 2):
                await socket.ask(id=f"q{number}")
            await eventually(lambda: server.engine.num_requests == 2)
            for path, body in bodies.items():
                assert (await server.http.post(path, json=body)).status_code == 200


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


@pytest.mark.one_loop
async def test_runs_are_counted_too_and_others_are_not_touched() -> None:
    limits = ServiceLimits(max_concurrent_per_user=2)
    async with serving(ENDLESS, limits=limits) as server, server.socket() as socket:
        await socket.hello()
        async with _streaming(server, 2):  # another account's
            for number in (1, 2):
                await socket.ask(id=f"q{number}")
                await socket.until("delta")
            await socket.ask(id="q3")
            error = (await socket.until("error"))[-1]
            assert (error["id"], error["code"], error["retryable"]) == ("q3", "rate_limited", True)
            assert error["retry_after_ms"] > 0


@pytest.mark.one_loop
async def test_each_key_has_limits_of_its_own_wherever_it_is_used(tmp_path: Path) -> None:
    """As a bearer token, or on however many WebSockets."""
    file = KeyFile(tmp_path / "keys.json")
    keys = [file.create(name, [Access.CHAT]) for name in ("anna", "ben")]
    limits = ServiceLimits(max_concurrent_per_user=2)
    auth = Auth(SECRET, KeyStore(file))
    async with serving(ENDLESS, limits=limits, auth=auth) as server, AsyncExitStack() as stack:
        for number in range(3):
            socket = await stack.enter_async_context(server.socket())
            await socket.hello(token=keys[0])
            await socket.ask(id=f"q{number}")
            told = await socket.until("accepted", "error")
        assert told[-1]["code"] == "rate_limited"
        statuses = []
        for key in keys:
            headers = {"authorization": f"Bearer {key}"}
            body = {"model": "scripted", "prompt": "p", "max_tokens": 1}
            reply = await server.http.post("/v1/completions", json=body, headers=headers)
            statuses.append(reply.status_code)
        assert statuses == [429, 200]


@pytest.mark.one_loop
async def test_a_key_for_batches_only_does_not_overtake_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = KeyFile(tmp_path / "keys.json")
    headers = {"authorization": "Bearer " + file.create("nightly", [Access.BATCH])}
    async with serving(auth=Auth(SECRET, KeyStore(file))) as server:
        priorities: list[int] = []
        generate = server.engine.generate

        def recording(request: GenerationRequest) -> AbstractAsyncContextManager[OutputStream]:
            priorities.append(request.priority)
            return generate(request)

        monkeypatch.setattr(server.engine, "generate", recording)
        for route, path in ROUTES.items():
            body = request_body(route, stream=False, priority="interactive")
            assert (await server.http.post(path, json=body, headers=headers)).status_code == 200
        assert priorities == [BATCH] * 3


@pytest.mark.one_loop
async def test_tokens_of_a_minute() -> None:
    """Prompt and answer are paid for; a refusal says when the next prompt will have its tokens."""
    limits = ServiceLimits(tokens_per_minute_per_user=6000)
    async with serving(ENDLESS, limits=limits) as server:
        rates = server.service.admission.rates
        used = (await server.chat("x" * 2900, max_tokens=7)).json()["usage"]["total_tokens"]
        left = rates.tokens_left("anonymous")
        assert 6000 - used <= left < 6000 - used + 150
        assert (await server.chat("x" * 2500, max_tokens=1)).status_code == 200
        for stream in (True, False):
            refused = await server.chat("x" * 2900, stream=stream)
            assert refused.status_code == 429
            assert refused.json()["error"]["code"] == "rate_limit_exceeded"
            lacking = 2900 - rates.tokens_left("anonymous")
            wait_s = int(refused.headers["retry-after"])
            assert math.floor(lacking / 100) <= wait_s <= math.ceil(lacking / 100) + 1
        assert rates.num_running("anonymous") == 0
        async with server.socket() as socket:
            await socket.hello()
            await socket.ask("x" * 2900, max_tokens=1)
            assert (await socket.answer())[-1]["type"] == "finish"


@pytest.mark.one_loop
async def test_a_client_that_leaves_pays_for_what_was_sampled() -> None:
    """Else whoever hangs up before the end would have everything for nothing."""
    # A hundred come back in a second: sampling, slow as it may be, takes more.
    limits = ServiceLimits(tokens_per_minute_per_user=6000)
    script = Script(answer=lambda _: "ab" * 5000, token_chars=2, token_s=0.0003)
    async with serving(script, limits=limits) as server:
        rates = server.service.admission.rates
        before = server.engine.stats.generated_tokens
        async with _streaming(server, 2):
            await eventually(lambda: server.engine.stats.generated_tokens - before > 2000)
            assert rates.tokens_left("anonymous") > 6000 - 1100, "only the prompt, so far"
        await server.until_idle()
        sampled = server.engine.stats.generated_tokens - before
        await eventually(lambda: rates.tokens_left("anonymous") < 6000 - sampled)


@pytest.mark.one_loop
async def test_a_prompt_that_was_not_used_is_not_paid_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = ServiceLimits(tokens_per_minute_per_user=100_000)
    async with serving(ENDLESS, limits=limits) as server:
        rates = server.service.admission.rates
        books = Books(server, monkeypatch, refuse_from=0)
        assert (await server.chat("x" * 3000)).status_code == 429
        assert rates.tokens_left("anonymous") == 100_000
        books.refuse_from = None
        assert (await server.chat("x" * 5000, max_tokens=1)).status_code == 400
        assert rates.tokens_left("anonymous") == 100_000


@pytest.mark.one_loop
async def test_prompts_that_are_tokenized_wait_in_the_same_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else any number of requests could wait for the tokenizer that no queue has room for."""
    async with serving(max_num_seqs=1, max_queued_requests=2) as server:
        gate = asyncio.Event()
        chat = server.service.generation.prompts.chat

        async def held(*args: object, **options: object) -> object:
            await gate.wait()
            return await chat(*args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(server.service.generation.prompts, "chat", held)
        waiting = [asyncio.create_task(server.chat()) for _ in range(3)]
        await eventually(lambda: server.service.admission.num_preparing == 3)
        assert (await server.chat()).json()["error"]["code"] == "queue_full"
        gate.set()
        assert [reply.status_code for reply in await asyncio.gather(*waiting)] == [200] * 3
        assert server.service.admission.num_preparing == 0
