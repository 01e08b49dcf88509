"""Cut, stopped and interrupted answers: what is kept of them, and how they go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NoReturn

import pytest
from sqlalchemy.exc import OperationalError

from engine.api import FinishType
from server.service.errors import ConversationBusyError, QueueFullError
from server.service.messages import Continue
from server.service.options import GenerationOptions
from server.service.runs import Run
from tests.server.app.site import ALICE, Site, events_of, kill, open_site

pytestmark = pytest.mark.anyio

# One token per byte, so that most cuts fall inside a character.
TEXT = "Tue 星期二 2 pm 🕑, B204 教室."
BYTES = [bytes([byte]) for byte in TEXT.encode()]
SLOW = {"token_s": 0.02, "token_chars": 1}
LONG = "x" * 400


def in_bytes(_prompt: str) -> list[bytes]:
    return BYTES


async def wait_for_deltas(run: Run, count: int) -> None:
    """Returns when the run has told so many deltas."""
    async for event in run.events():
        count -= event.type == "delta"
        if count == 0:
            return
    raise AssertionError("the run ended too early")


async def prompt_of(site: Site, message: str) -> tuple[int, ...] | None:
    row = await site.app.messages.get(ALICE, message, with_tokens=True)
    assert row is not None
    return row.prompt_token_ids


@pytest.mark.parametrize("step", [3, 7, 30])
async def test_continuing_is_exact_at_any_cut(tmp_path: Path, step: int) -> None:
    async with open_site(tmp_path, in_bytes) as site:
        whole = await site.answer()
        assert whole["text"][0]["text"] == TEXT

        events = await site.answer(max_tokens=step)
        accepted = events["accepted"][0]
        message = accepted["message"]
        prompt = await prompt_of(site, message)
        text, num_parts, seams = events["text"][0]["text"], 1, []
        while events["finish"][0]["can_continue"]:
            stored = await site.stored(message)
            assert (stored["text"], stored["can_continue"]) == (text, True)
            assert stored["finish_detail"] == {"type": "max_tokens"}
            assert [notice["kind"] for notice in stored["notices"]] == ["answer_cut"]
            seams.append(len(text))
            events = await site.go_on(message)
            assert events["start"][0]["continued"]
            assert events["start"][0]["base_chars"] == len(text), "code points, not UTF-16"
            assert events["start"][0]["base_thinking_chars"] == 0
            assert {
                k: v
                for k, v in events["accepted"][0].items()
                if k in ("message", "parent", "user_message", "conversation")
            } == {
                "message": message,
                "parent": None,
                "user_message": accepted["user_message"],
                "conversation": accepted["conversation"],
            }
            text += events["text"][0]["text"]
            told, stored = events["finish"][0], await site.stored(message)
            for name in ("usage", "timing"):
                assert told[name] == stored[name], "a page that looked on and one that reloads"
            num_parts += 1
            assert num_parts <= len(BYTES) + 2

        stored = await site.stored(message)
        assert text == stored["text"] == TEXT
        assert stored["seams"] == seams
        assert stored["finish_detail"] == {"type": "eos"}
        assert await prompt_of(site, message) == prompt
        usage = stored["usage"]
        assert usage["completion_tokens"] == len(BYTES) + 1, "every token once, and EOS"
        assert usage["prompt_tokens"] == len(prompt or ())
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert len(usage["parts"]) == len(stored["timing"]["parts"]) == num_parts
        messages = (await site.conversation(accepted["conversation"]))["messages"]
        assert len(messages) == 2


async def test_an_ended_answer_cannot_be_continued(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        accepted = (await site.answer())["accepted"][0]
        before = await site.stored(accepted["message"])
        (error,) = (await site.go_on(accepted["message"]))["error"]
        assert error["code"] == "bad_request"
        assert await site.stored(accepted["message"]) == before


async def test_an_answer_that_filled_the_window_cannot_be_continued(tmp_path: Path) -> None:
    async with open_site(
        tmp_path, lambda _: LONG * 5, max_model_len=900, script={"token_chars": 1}
    ) as site:
        events = await site.answer(max_tokens=5000)
        (start,), (finish,) = events["start"], events["finish"]
        assert start["max_tokens_lowered"]
        assert finish["finish_detail"] == {"type": "context_window"}
        assert not finish["can_continue"]
        stored = await site.stored(events["accepted"][0]["message"])
        assert [notice["kind"] for notice in stored["notices"]] == ["window_full"]


async def test_a_stopped_answer_is_kept_and_seen_by_the_next_question(tmp_path: Path) -> None:
    async with open_site(tmp_path, in_bytes, script=SLOW) as site:
        run = await site.app.chat.ask(ALICE, site.ask())
        await wait_for_deltas(run, 5)
        run.cancel()
        events = await events_of(run)
        accepted, finish = events["accepted"][0], events["finish"][0]
        text = events["text"][0]["text"]
        assert finish["finish_detail"] == {"type": "cancelled"}
        assert finish["can_continue"]
        assert TEXT.startswith(text)
        assert text != TEXT
        stored = await site.stored(accepted["message"])
        assert (stored["state"], stored["text"]) == ("stopped", text)

        await site.answer(conversation=accepted["conversation"], max_tokens=1)
        assert f"assistant\n{text}<|im_end|>" in site.prompts[-1]
        assert len((await site.conversation(accepted["conversation"]))["messages"]) == 4


async def test_a_stop_before_the_first_token_leaves_nothing_to_continue(tmp_path: Path) -> None:
    async with open_site(tmp_path, script={"prefill_s": 0.2}) as site:
        run = await site.app.chat.ask(ALICE, site.ask())
        run.cancel()
        (finish,) = (await events_of(run))["finish"]
        assert finish["finish_detail"] == {"type": "cancelled"}
        assert not finish["can_continue"]
        assert run.message is not None
        stored = await site.stored(run.message)
        assert (stored["state"], stored["text"], stored["can_continue"]) == ("stopped", "", False)


async def test_a_killed_server_keeps_question_and_text_and_can_go_on(tmp_path: Path) -> None:
    """SIGKILL in mid-answer: the copy of the database is what the next start finds."""
    async with open_site(tmp_path / "a", in_bytes, script={**SLOW, "token_s": 0.05}) as site:
        run = await site.app.chat.ask(ALICE, site.ask(id="asked"))
        await wait_for_deltas(run, 6)
        saved = run.text
        await site.app.drafts.save()
        left = kill(tmp_path / "a", tmp_path / "b")
        assert run.message is not None
        message, conversation = run.message, run.conversation
        run.cancel()
        await events_of(run)

    async with open_site(left, in_bytes) as site:
        stored = await site.stored(message)
        assert (stored["state"], stored["can_continue"]) == ("interrupted", True)
        assert stored["finish_detail"] == {"type": "interrupted"}
        assert TEXT.startswith(stored["text"])
        assert len(stored["text"]) >= len(saved) > 0
        again = await events_of(await site.app.chat.ask(ALICE, site.ask(id="asked")))
        assert again["text"][0]["text"] == stored["text"], "never two copies"
        rest = await site.go_on(message)
        assert stored["text"] + rest["text"][0]["text"] == TEXT
        usage = rest["finish"][0]["usage"]
        before, after = usage["parts"]
        assert before["completion_tokens"] > 0, "those of the process that ended count"
        assert before["total_tokens"] == after["prompt_tokens"]
        assert usage["completion_tokens"] == len(TEXT.encode()) + 1, "a byte a token, and the end"
        assert conversation is not None
        messages = (await site.conversation(conversation))["messages"]
        assert [message["text"] for message in messages][1:] == [TEXT]


async def test_text_is_saved_while_it_grows(tmp_path: Path) -> None:
    async with open_site(tmp_path, in_bytes, script=SLOW) as site:
        site.app.drafts._interval_s = 0.05
        run = await site.app.chat.ask(ALICE, site.ask())
        async with asyncio.timeout(10):
            async for event in run.events():
                if event.type == "delta":
                    assert run.message is not None
                    stored = await site.stored(run.message)
                    assert TEXT.startswith(stored["text"])
                    if stored["state"] == "running" and stored["text"]:
                        break
            else:
                raise AssertionError("nothing was saved before the end")
        run.cancel()
        await events_of(run)


async def test_a_shutdown_stores_the_text_so_far(tmp_path: Path) -> None:
    async with open_site(tmp_path, lambda _: LONG, script=SLOW) as site:
        run = await site.app.chat.ask(ALICE, site.ask())
        await wait_for_deltas(run, 3)
        await site.app.drain()
        (finish,) = (await events_of(run))["finish"]
        assert finish["finish_detail"] == {"type": FinishType.SHUTDOWN.value}
        assert run.message is not None
        stored = await site.stored(run.message)
        assert (stored["state"], stored["can_continue"]) == ("interrupted", True)
        assert stored["text"] == run.text != ""


async def test_a_running_answer_is_not_continued_twice(tmp_path: Path) -> None:
    async with open_site(tmp_path, in_bytes, script=SLOW) as site:
        message = (await site.answer(max_tokens=9))["accepted"][0]["message"]
        first = Continue(id="1", message=message)
        run = await site.app.chat.continue_(ALICE, first)
        assert await site.app.chat.continue_(ALICE, first) is run
        with pytest.raises(ConversationBusyError):
            await site.app.chat.continue_(ALICE, Continue(id="2", message=message))
        await events_of(run)


async def test_a_continuation_that_is_refused_leaves_the_answer_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_site(tmp_path, in_bytes) as site:
        message = (await site.answer(max_tokens=9))["accepted"][0]["message"]
        before: dict[str, Any] = await site.stored(message)
        # Between the run's opening and its generation the engine stops.
        monkeypatch.setattr(site.app.service.admission, "check", lambda: None)
        await site.app.engine.shutdown(0)
        (error,) = (await site.go_on(message))["error"]
        assert error["code"] == "shutting_down"
        assert await site.stored(message) == before


async def test_a_continuation_whose_sources_cannot_be_read_leaves_the_answer_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row stayed `running` until the next start, and nothing could be done with it."""
    async with open_site(tmp_path, in_bytes) as site:
        message = (await site.answer(max_tokens=9))["accepted"][0]["message"]
        before: dict[str, Any] = await site.stored(message)

        async def fail(_ids: object) -> NoReturn:
            raise OperationalError("SELECT", {}, Exception("disk I/O error"))

        with monkeypatch.context() as patch:
            patch.setattr(site.app.messages, "passages", fail)
            (error,) = (await site.go_on(message))["error"]
        assert error["retryable"]
        assert await site.stored(message) == before
        (finish,) = (await site.go_on(message, max_tokens=500))["finish"]
        assert finish["finish_detail"] == {"type": "eos"}


@pytest.mark.parametrize("step", range(1, 5))
async def test_no_part_of_a_stop_string_across_the_seam_is_shown(tmp_path: Path, step: int) -> None:
    """Cut in mid-word, the answer keeps the word back until it is known what became of it."""
    answer, shown = "See you on Thursday, 3 pm.", "See you on "
    async with open_site(tmp_path, lambda _: answer) as site:
        events = await site.answer(max_tokens=step, stop=["Thursday"])
        message = events["accepted"][0]["message"]
        text = events["text"][0]["text"]
        while (stored := await site.stored(message))["can_continue"]:
            assert shown.startswith(text)
            assert stored["text"] == text
            text += (await site.go_on(message))["text"][0]["text"]
        assert text == stored["text"] == shown
        assert stored["finish_detail"] == {"type": "stop_string", "matched": "Thursday"}


async def go_on_as(site: Site, key: str, message: str, max_tokens: int) -> dict[str, Any]:
    """Continues an answer of Alice's under an idempotency key."""
    options = GenerationOptions(max_tokens=max_tokens)
    more = Continue(id=key, message=message, options=options)
    return await events_of(await site.app.chat.continue_(ALICE, more))


@pytest.mark.one_loop
async def test_one_continue_is_one_even_after_a_restart(tmp_path: Path) -> None:
    """The page sends it again when it has not heard of it before its connection broke."""
    async with open_site(tmp_path, in_bytes) as site:
        message = (await site.answer(max_tokens=4))["accepted"][0]["message"]
        cut = await site.stored(message)
        before = await go_on_as(site, "more", message, 9)
        longer = await site.stored(message)
        assert longer["can_continue"], "nothing but its key keeps it from going on"
    async with open_site(tmp_path, in_bytes) as site:
        after = await go_on_as(site, "more", message, 9)
        assert site.prompts == []
        assert await site.stored(message) == longer
        for name in ("accepted", "start", "finish"):
            (was,), (now,) = before[name], after[name]
            beside = {"seq": 0, "run": "", "cached_tokens": 0}
            assert {**was, **beside} == {**now, **beside}, name
        assert after["start"][0]["base_chars"] == len(cut["text"])
        assert cut["text"] + after["text"][0]["text"] == longer["text"]
        assert "retrieval" not in after

        # What was gone on with since is told as well: it is the answer as it is now.
        await go_on_as(site, "yet more", message, 200)
        site.app.service.runs._forget(after["accepted"][0]["run"])
        whole = await go_on_as(site, "more", message, 9)
        assert whole["start"][0]["base_chars"] == len(cut["text"])
        assert cut["text"] + whole["text"][0]["text"] == TEXT
        assert (await site.stored(message))["seams"] == [*longer["seams"], len(longer["text"])]


@pytest.mark.one_loop
@pytest.mark.parametrize("num_deltas", [0, 4])
async def test_a_continue_that_died_with_its_process_is_one_part_afterwards(
    tmp_path: Path, num_deltas: int
) -> None:
    async with open_site(tmp_path / "a", in_bytes, script=SLOW) as site:
        message = (await site.answer(max_tokens=7))["accepted"][0]["message"]
        cut = await site.stored(message)
        options = GenerationOptions(max_tokens=200)
        more = Continue(id="more", message=message, options=options)
        run = await site.app.chat.continue_(ALICE, more)
        async for event in run.events():
            if event.type == "accepted":
                break
        if num_deltas:
            await wait_for_deltas(run, num_deltas)
            await site.app.drafts.save()
        left = kill(tmp_path / "a", tmp_path / "b")
        run.cancel()
        await events_of(run)
    async with open_site(left, in_bytes) as site:
        died = await site.stored(message)
        events = await go_on_as(site, "more", message, 200)
        stored = await site.stored(message)
        assert stored["seams"] == [len(cut["text"])]
        assert events["start"][0]["base_chars"] == len(cut["text"])
        assert cut["text"] + events["text"][0]["text"] == stored["text"]
        if num_deltas:
            assert stored == died, "what was written is the last word"
        else:
            assert died["text"] == cut["text"]
            assert stored["text"] == TEXT


@pytest.mark.one_loop
async def test_a_continuation_that_died_counts_what_it_left(tmp_path: Path) -> None:
    """The figures are of all that is there, and of no time that nobody saw pass."""
    async with open_site(tmp_path / "a", in_bytes, script=SLOW) as site:
        message = (await site.answer(max_tokens=4))["accepted"][0]["message"]
        cut = await site.stored(message)
        asked = Continue(id="more", message=message, options=GenerationOptions(max_tokens=200))
        run = await site.app.chat.continue_(ALICE, asked)
        await wait_for_deltas(run, 6)
        await site.app.drafts.save()
        left = kill(tmp_path / "a", tmp_path / "b")
        run.cancel()
        await events_of(run)
    async with open_site(left, in_bytes) as site:
        died = await site.stored(message)
        row = await site.app.messages.get(ALICE, message, with_tokens=True)
        assert row is not None
        usage, timing = died["usage"], died["timing"]
        assert usage["completion_tokens"] == len(row.token_ids or ()) > 4
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert [part["max_tokens"] for part in usage["parts"]] == [4, None]
        assert usage["parts"][1]["prompt_tokens"] == cut["usage"]["total_tokens"]
        assert died["context"]["window_used"] == usage["total_tokens"]
        assert died["max_tokens"] is None
        assert (timing["total_ms"], timing["tokens_per_s"]) == (None, None)
        assert timing["ttft_ms"] == cut["timing"]["ttft_ms"], "that was seen"
        rest = (await site.go_on(message))["finish"][0]
        assert rest["usage"]["completion_tokens"] == len(BYTES) + 1
        assert len(rest["usage"]["parts"]) == len(rest["timing"]["parts"]) == 3
        assert rest["timing"]["total_ms"] is None, "a sum of what is known would tell an untruth"
        assert rest["timing"]["tokens_per_s"] is not None


@pytest.mark.one_loop
async def test_a_continue_that_failed_may_be_asked_for_again(tmp_path: Path) -> None:
    async with open_site(tmp_path, in_bytes, run_log_ttl_s=0.0) as site:
        message = (await site.answer(max_tokens=4))["accepted"][0]["message"]
        cut = await site.stored(message)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(site.app.service.generation, "submit", _full)
            refused = await go_on_as(site, "more", message, 200)
        assert refused["error"][0]["retryable"]
        assert (await site.stored(message))["seams"] == cut["seams"]
        await go_on_as(site, "more", message, 200)
        stored = await site.stored(message)
        assert (stored["text"], stored["seams"]) == (TEXT, [len(cut["text"])])


def _full(*_args: object, **_options: object) -> object:
    raise QueueFullError("full", retry_after_ms=1000)
