"""Prompt to answer for the application: continuation, cancelling, counting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import pytest

from engine.api import FinishType, Script
from server.service.auth import UserId
from server.service.errors import PromptTooLongError
from server.service.generation import Completion, GenerationOptions
from server.service.limits import ServiceLimits
from server.service.messages import ChatMessage
from server.service.request_terms import BATCH, INTERACTIVE
from server.service.runs import Run
from tests.server.service.harness import Server, eventually, serving
from tests.server.service.recorded_requests import recorded_requests

pytestmark = pytest.mark.anyio

USER = UserId("somebody")
QUESTION = [ChatMessage("user", "hi")]


async def _answer(
    server: Server, *, continue_ids: Sequence[int] = (), max_tokens: int | None = None
) -> tuple[Run, Completion]:
    done: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()

    async def produce(run: Run) -> None:
        generation = server.service.generation
        prompt = await generation.prepare_chat(QUESTION, continue_ids=continue_ids)
        options = GenerationOptions(max_tokens=max_tokens)
        completion = await generation.relay(run, prompt, options, salt="s")
        generation.finish_run(run, completion, can_continue=True)
        done.set_result(completion)

    run = server.service.runs.open(USER, produce)
    async with asyncio.timeout(5):
        return run, await done


async def test_a_cut_answer_goes_on_token_exactly() -> None:
    """Cut inside a character: the first half is never shown, the continuation completes it."""
    script = Script(answer=lambda _: [b"one ", b"\xe8\xae", b"\xb2", b" two", b" three"])
    async with serving(script) as server:
        _, cut = await _answer(server, max_tokens=2)
        assert (cut.text, cut.finish.detail.type) == ("one ", FinishType.MAX_TOKENS)
        assert (cut.max_tokens, cut.lowered) == (2, False)
        run, rest = await _answer(server, continue_ids=cut.token_ids)
        assert rest.text == "讲 two three"
        assert rest.prompt_token_ids == cut.prompt_token_ids
        assert rest.finish.usage.prompt_tokens == len(cut.prompt_token_ids) + 2
        start = next(event for event in run.read(0) if event.type == "start")
        assert b'"continued":true' in start.data
        _, whole = await _answer(server)
        assert cut.text + rest.text == whole.text
        assert cut.token_ids + rest.token_ids == whole.token_ids


async def test_cancel_before_the_engine_was_asked() -> None:
    async with serving() as server:
        generation = server.service.generation
        completions: list[Completion] = []

        async def produce(run: Run) -> None:
            run.cancel()
            prompt = await generation.prepare_chat(QUESTION)
            completions.append(await generation.relay(run, prompt, GenerationOptions(), salt=""))
            generation.finish_run(run, completions[0], can_continue=True)

        run = server.service.runs.open(USER, produce)
        await eventually(lambda: run.is_finished)
        assert completions[0].finish.detail.type is FinishType.CANCELLED
        assert completions[0].text == ""
        assert server.engine.stats.num_steps == 0


async def test_a_full_window_is_told_apart_from_the_caller_s_limit() -> None:
    script = Script(answer=lambda _: "x" * 500, token_chars=1)
    async with serving(script, max_model_len=128) as server:
        _, own = await _answer(server, max_tokens=5)
        assert (own.finish.detail.type, own.lowered) == (FinishType.MAX_TOKENS, False)
        for asked in (None, 1000):
            _, full = await _answer(server, max_tokens=asked)
            assert full.finish.detail.type is FinishType.CONTEXT_WINDOW
            assert full.max_tokens == 128 - len(full.prompt_token_ids) == len(full.token_ids)
            assert full.lowered is (asked is not None)


async def test_an_engine_failure_is_the_run_s_error() -> None:
    async with serving(Script(answer=lambda _: "onetwothree", fail_after=1)) as server:
        run, completion = await _answer(server)
        assert completion.finish.detail.type is FinishType.ERROR
        last = run.read(0)[-1]
        assert last.type == "error"
        assert b'"code":"internal"' in last.data


async def test_long_prompts_report_progress() -> None:
    script = Script(prefill_s=0.02)
    async with serving(script, max_num_batched_tokens=16, max_num_seqs=4) as server:

        async def produce(run: Run) -> None:
            generation = server.service.generation
            prompt = await generation.prepare_chat(QUESTION)
            completion = await generation.relay(run, prompt, GenerationOptions(), salt="")
            generation.finish_run(run, completion, can_continue=False)

        run = server.service.runs.open(USER, produce)
        kinds = [event.type async for event in run.events()]
        assert kinds[0] == "start"
        assert "progress" in kinds
        assert kinds.index("progress") < kinds.index("delta")


async def test_counting() -> None:
    async with serving(max_model_len=64) as server:
        generation = server.service.generation
        assert await generation.count_tokens(["", "abc", "讲"]) == [0, 3, 3]
        prompt = await generation.prepare_chat(QUESTION)
        assert await generation.count_chat(QUESTION) == prompt.num_tokens
        assert generation.room(prompt) == 64 - prompt.num_tokens
        too_long = await generation.prepare_chat([ChatMessage("user", "x" * 64)])
        with pytest.raises(PromptTooLongError, match="64"):
            generation.room(too_long)


async def test_a_text_that_cannot_fit_is_refused_without_tokenizing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A megabyte was tokenized, for seconds of a thread, only to be refused by its count."""
    async with serving(max_model_len=64) as server:
        generation = server.service.generation

        def encode(text: str, **options: bool) -> list[int]:
            raise AssertionError("it was tokenized")

        monkeypatch.setattr(server.engine.tokenizer, "encode", encode)
        monster = "讲" * 100_000
        with pytest.raises(PromptTooLongError, match=r"at least 23\d\d\d tokens.* 64 tokens"):
            await generation.prepare_chat([ChatMessage("user", monster)])
        with pytest.raises(PromptTooLongError) as refused:
            await generation.prompts.raw(monster)
        assert refused.value.param == "prompt"
        with pytest.raises(PromptTooLongError) as refused:
            generation.check_size(monster, param="text")
        assert refused.value.param == "text"


async def test_the_cache_bounds_the_window() -> None:
    """With a cache smaller than the model's window, room was promised that there was not."""
    async with serving(max_model_len=4000, kv_cache_tokens=128) as server:
        prompt = await server.service.generation.prepare_chat(QUESTION)
        assert server.service.generation.room(prompt) == 128 - prompt.num_tokens
        async with server.socket() as socket:
            welcome = await socket.hello()
            assert welcome["limits"]["max_tokens"] == welcome["model"]["window"] == 128


async def test_an_accepted_run_may_still_ask_the_engine_while_the_server_drains() -> None:
    """A question that was still looking for its passages ended at once at SIGTERM."""
    async with serving() as server:
        service = server.service
        gate = asyncio.Event()

        async def produce(run: Run) -> None:
            await gate.wait()
            prompt = await service.generation.prepare_chat(QUESTION)
            completion = await service.generation.relay(run, prompt, GenerationOptions(), salt="")
            service.generation.finish_run(run, completion, can_continue=False)

        run = service.runs.open(USER, produce)
        ending = asyncio.create_task(service.shutdown(5))
        await eventually(lambda: not service.admission.is_ready)
        gate.set()
        events = [event async for event in run.events()]
        assert b'"eos"' in events[-1].data
        async with asyncio.timeout(2):
            await ending


@pytest.mark.one_loop
async def test_terms_reach_the_engine_by_every_way_of_asking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run's, a chat's, a completion's, a response's: the same fields mean the same."""
    async with serving() as server:
        requests = recorded_requests(server, monkeypatch)
        fields: dict[str, Any] = {"timeout": 7, "priority": "batch"}
        began_s = time.monotonic()
        await server.chat("hi", **fields)
        text = {"model": "scripted", "prompt": "hi", **fields}
        await server.http.post("/v1/completions", json=text)
        response = {"model": "scripted", "input": "hi", **fields}
        await server.http.post("/v1/responses", json=response)
        async with server.socket() as socket:
            await socket.hello()
            await socket.ask("hi", **fields)
            await socket.answer()
        assert [request.priority for request in requests] == [BATCH] * 4
        ended_s = time.monotonic()
        for request in requests:
            assert request.deadline_s is not None
            assert began_s + 7 <= request.deadline_s <= ended_s + 7
        await server.chat("hi", service_tier="flex")
        await server.chat("hi", service_tier="default")
        assert [request.priority for request in requests[4:]] == [BATCH, INTERACTIVE]


@pytest.mark.one_loop
async def test_bad_terms_are_named_by_every_way_of_asking() -> None:
    async with serving(limits=ServiceLimits(request_timeout_s=30)) as server:
        for field, value in (("timeout", 0), ("timeout", 31), ("priority", "urgent")):
            for path, prompt in (
                ("chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
                ("completions", {"prompt": "hi"}),
                ("responses", {"input": "hi"}),
            ):
                body = {"model": "scripted", **prompt, field: value}
                refused = await server.http.post(f"/v1/{path}", json=body)
                assert refused.status_code == 400, refused.text
                assert refused.json()["error"]["param"] == field
            async with server.socket() as socket:
                await socket.hello()
                options: dict[str, Any] = {field: value}
                await socket.ask("hi", **options)
                error = (await socket.until("error", "finish"))[-1]
                assert (error["code"], error["param"]) == ("bad_request", f"options.{field}")


@pytest.mark.one_loop
async def test_who_waits_for_an_answer_goes_before_a_batch() -> None:
    script = Script(
        answer=lambda prompt: "x" * (400 if "first" in prompt else 20),
        token_chars=1,
        token_s=0.002,
    )
    async with serving(script, max_num_seqs=1) as server:
        order: list[str] = []

        async def ask(name: str, **fields: Any) -> None:
            assert (await server.chat(name, **fields)).status_code == 200
            order.append(name)

        tasks = [asyncio.create_task(ask("first"))]
        await eventually(lambda: server.engine.stats.num_running == 1)
        for name, fields in (
            ("batch", {"priority": "batch"}),
            ("flex", {"service_tier": "flex"}),
            ("person", {}),
        ):
            tasks.append(asyncio.create_task(ask(name, **fields)))
            await eventually(lambda: server.engine.num_requests == len(tasks))
        assert order == [], "all of them came while the first was answered"
        await asyncio.gather(*tasks)
        assert order[:2] == ["first", "person"]
        assert set(order[2:]) == {"batch", "flex"}


@pytest.mark.one_loop
async def test_a_place_in_the_queue_has_an_estimate_once_ends_were_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twelve answers of 100 ms, one at a time."""
    script = Script(answer=lambda _: "x" * 20, token_chars=1, token_s=0.005)
    async with serving(script, max_num_seqs=1) as server:
        generation = server.service.generation
        requests = recorded_requests(server, monkeypatch)
        asking = [asyncio.create_task(server.chat()) for _ in range(12)]
        await eventually(lambda: len(requests) == 12)
        await eventually(lambda: server.engine.stats.num_running == 1)
        assert generation.queue_place(requests[0].request_id) is None
        assert generation.queue_place("never seen") is None
        waiting = generation.queue_place(requests[-1].request_id)
        assert waiting is not None
        assert (waiting.position > 8, waiting.eta_ms) == (True, None)
        told: list[tuple[float, int, int]] = []

        def look() -> bool:
            place = generation.queue_place(requests[-1].request_id)
            if place is not None and place.eta_ms is not None:
                told.append((time.monotonic(), place.position, place.eta_ms))
            return place is None

        await eventually(look)
        began_s = time.monotonic()
        positions = [position for _, position, _ in told]
        assert positions == sorted(positions, reverse=True)
        # The middle one: a machine that does something else for a moment spoils the others.
        ratios = [
            eta_ms / 1000 / (began_s - at_s) for at_s, position, eta_ms in told if position >= 3
        ]
        assert 0.4 < median(ratios) < 2.5
        assert len(set(positions)) >= 3
        await asyncio.gather(*asking)


@pytest.mark.one_loop
async def test_a_run_s_deadline_counts_from_its_opening() -> None:
    """What looking for passages takes is not given on top."""
    async with serving() as server:
        generation = server.service.generation

        async def produce(run: Run) -> None:
            options = GenerationOptions(timeout=0.2)
            prompt = await generation.prepare_chat(QUESTION)
            await asyncio.sleep(0.25)
            completion = await generation.relay(run, prompt, options, salt="")
            generation.finish_run(run, completion, can_continue=False)

        run = server.service.runs.open(USER, produce)
        await eventually(lambda: run.is_finished)
        assert b'{"type":"deadline"}' in run.read(0)[-1].data
        assert server.engine.stats.num_steps == 0
