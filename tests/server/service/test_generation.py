"""Prompt to answer for the application: continuation, cancelling, counting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from engine.api import FinishType, Script
from server.service.auth import UserId
from server.service.errors import PromptTooLongError
from server.service.generation import Completion, GenerationOptions
from server.service.messages import ChatMessage
from server.service.runs import Run
from tests.server.service.harness import Server, eventually, serving

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
