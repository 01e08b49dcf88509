"""A question's way through the application, and what is stored of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from server.service.errors import (
    BadRequestError,
    ConversationBusyError,
    NotFoundError,
    QueueFullError,
    ShuttingDownError,
)
from server.service.messages import Continue, Edit, Feedback, Regenerate
from server.store.messages import Outcome
from tests.server.app.site import ALICE, BOB, QUESTION, Site, events_of, open_site, write_course

pytestmark = pytest.mark.anyio

SLOW = {"token_s": 0.02}


@pytest.fixture
async def site(tmp_path: Path, anyio_backend: object) -> AsyncIterator[Site]:
    async with open_site(tmp_path) as site:
        yield site


async def test_an_answer_streams_with_its_sources_and_is_stored_as_told(site: Site) -> None:
    run = await site.app.chat.ask(ALICE, site.ask(max_tokens=64))
    types = [event.type async for event in run.events()]
    assert types[:4] == ["accepted", "retrieval", "context", "start"]
    assert types[-1] == "finish"
    assert set(types[4:-2]) <= {"progress", "delta"}
    assert types[-2] == "citation"

    events = await events_of(run)
    (accepted,), (retrieval,), (context,) = (
        events["accepted"],
        events["retrieval"],
        events["context"],
    )
    (start,), (finish,) = events["start"], events["finish"]
    assert "Tuesday from 14:00" in retrieval["passages"][0]["text"]
    assert [passage["n"] for passage in retrieval["passages"]] == list(
        range(1, len(retrieval["passages"]) + 1)
    )
    parts = ("system", "passages", "history", "question")
    assert sum(context[part] for part in parts) == start["prompt_tokens"]
    assert start["prompt_tokens"] == finish["usage"]["prompt_tokens"]
    assert (start["max_tokens"], start["continued"]) == (64, False)
    assert finish["finish_detail"] == {"type": "eos"}
    assert not finish["can_continue"]

    answer = await site.stored(accepted["message"])
    assert answer["text"] == events["text"][0]["text"] == "On Tuesday, in room B204 [1]."
    assert answer["state"] == "finished"
    assert answer["parent"] == accepted["user_message"]
    assert answer["max_tokens"] == 64
    told = [passage | {"is_cited": False, "marks": []} for passage in retrieval["passages"]]
    assert [p | {"is_cited": False, "marks": []} for p in answer["passages"]] == told
    for name in ("finish_reason", "finish_detail", "usage", "timing", "can_continue", "no_support"):
        assert answer[name] == finish[name]
    seen = {name: context[name] for name in answer["context"] if name != "window_used"}
    assert answer["context"] == {**seen, "window_used": finish["window_used"]}
    question = await site.stored(accepted["user_message"])
    assert (question["text"], question["parent"]) == (QUESTION, None)


async def test_what_is_told_is_stored_before(tmp_path: Path) -> None:
    async with open_site(tmp_path, script=SLOW) as site:
        run = await site.app.chat.ask(ALICE, site.ask())
        states: dict[str, str] = {}
        async for event in run.events():
            assert run.message is not None
            answer = await site.stored(run.message)
            states.setdefault(event.type, answer["state"])
            assert (await site.stored(answer["parent"]))["text"] == QUESTION
    assert (states["accepted"], states["finish"]) == ("running", "finished")


async def test_the_same_id_is_the_same_answer_even_after_a_restart(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        first, second = await asyncio.gather(
            site.app.chat.ask(ALICE, site.ask(id="once")),
            site.app.chat.ask(ALICE, site.ask(id="once")),
        )
        assert first is second
        before = await events_of(first)
        other = await events_of(await site.app.chat.ask(BOB, site.ask(id="once")))
        assert other["accepted"][0]["message"] != before["accepted"][0]["message"]
        assert len(site.prompts) == 2
    async with open_site(tmp_path) as site:
        after = await events_of(await site.app.chat.ask(ALICE, site.ask(id="once")))
        assert site.prompts == []
    for name in ("accepted", "retrieval", "context", "finish"):
        (was,), (now,) = before[name], after[name]
        ignored = {"seq", "run"}
        assert {k: v for k, v in was.items() if k not in ignored} == {
            k: v for k, v in now.items() if k not in ignored
        }
    assert after["text"] == before["text"]
    # A page that has read the stored answer writes none of it twice.
    (was,), (now,) = before["start"], after["start"]
    for name in ("model", "prompt_tokens", "max_tokens", "max_tokens_lowered", "continued"):
        assert was[name] == now[name], name
    assert (now["base_chars"], now["base_thinking_chars"]) == (0, 0)
    assert now["seq"] < after["delta"][0]["seq"]
    assert "base_chars" not in was


async def test_what_was_not_found_is_told_again_from_the_beginning(tmp_path: Path) -> None:
    async with open_site(tmp_path, not_found_score=1.0) as site:
        before = await site.answer("Zebras?", id="once")
    async with open_site(tmp_path, not_found_score=1.0) as site:
        after = await site.answer("Zebras?", id="once")
    assert after["text"] == before["text"]
    assert after["start"][0]["base_chars"] == 0


async def test_a_conversation_answers_one_question_at_a_time(tmp_path: Path) -> None:
    async with open_site(tmp_path, script=SLOW) as site:
        done = await site.answer()
        conversation = done["accepted"][0]["conversation"]
        run = await site.app.chat.ask(ALICE, site.ask(conversation=conversation))
        with pytest.raises(ConversationBusyError):
            await site.app.chat.ask(ALICE, site.ask(conversation=conversation))
        await events_of(run)
        await site.answer(conversation=conversation)
        messages = (await site.conversation(conversation))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 3
    assert [message["parent"] for message in messages[1:]] == [m["id"] for m in messages[:-1]]


async def test_what_belongs_to_somebody_else_does_not_exist(site: Site) -> None:
    accepted = (await site.answer())["accepted"][0]
    conversation, answer = accepted["conversation"], accepted["message"]
    question = accepted["user_message"]
    chat = site.app.chat
    for attempt in (
        chat.ask(BOB, site.ask(conversation=conversation)),
        chat.continue_(BOB, Continue(id="1", message=answer)),
        chat.regenerate(BOB, Regenerate(id="2", message=answer)),
        chat.edit(BOB, Edit(id="3", message=question, text="mine?")),
        chat.feedback(BOB, Feedback(id="4", message=answer, value="down")),
    ):
        with pytest.raises(NotFoundError):
            await attempt
    async with site.client(BOB) as client:
        address = f"/api/conversations/{conversation}"
        assert (await client.get(address)).status_code == 404
        assert (await client.get(f"{address}/export")).status_code == 404
        assert (await client.delete(address)).status_code == 404
        assert (await client.get("/api/conversations")).json()["conversations"] == []
    assert len((await site.conversation(conversation))["messages"]) == 2


async def test_feedback_is_there_when_the_conversation_is_read_again(site: Site) -> None:
    accepted = (await site.answer())["accepted"][0]
    answer = accepted["message"]
    assert (await site.stored(answer))["feedback"] is None
    chat = site.app.chat
    await chat.feedback(ALICE, Feedback(id="1", message=answer, value="down", note="room?"))
    assert (await site.stored(answer))["feedback"] == {"value": "down", "note": "room?"}
    await chat.feedback(ALICE, Feedback(id="2", message=answer, value="up"))
    assert (await site.stored(answer))["feedback"] == {"value": "up", "note": None}
    await chat.feedback(ALICE, Feedback(id="3", message=answer, value="none"))
    assert (await site.stored(answer))["feedback"] is None


async def test_wrong_requests_are_refused_at_once_and_store_nothing(site: Site) -> None:
    accepted = (await site.answer())["accepted"][0]
    other = (await site.answer())["accepted"][0]
    chat, conversation = site.app.chat, accepted["conversation"]
    for attempt, param in (
        (chat.ask(ALICE, site.ask("a\0b")), "text"),
        (chat.ask(ALICE, site.ask(max_tokens=0)), "max_tokens"),
        (chat.ask(ALICE, site.ask(conversation=conversation, parent=other["message"])), "parent"),
        (
            chat.ask(ALICE, site.ask(conversation=conversation, parent=accepted["user_message"])),
            "parent",
        ),
        (chat.edit(ALICE, Edit(id="e", message=accepted["message"], text="?")), "message"),
        (
            chat.feedback(ALICE, Feedback(id="f", message=other["user_message"], value="up")),
            "message",
        ),
    ):
        with pytest.raises(BadRequestError) as refused:
            await attempt
        assert refused.value.param == param
    with pytest.raises(NotFoundError):
        await chat.ask(ALICE, site.ask(course="nowhere"))
    async with site.client() as client:
        conversations = (await client.get("/api/conversations")).json()["conversations"]
    assert [one["num_messages"] for one in conversations] == [2, 2]


async def test_not_found_is_said_without_a_model(tmp_path: Path) -> None:
    async with open_site(tmp_path, not_found_score=0.9) as site:
        events = await site.answer("Which zebra won the marathon on Tuesday?")
        (retrieval,), (finish,) = events["retrieval"], events["finish"]
        assert retrieval["not_found"]
        assert [passage["used"] for passage in retrieval["passages"]] == [False]
        assert events["text"][0]["text"].startswith("Not found in the course materials.")
        assert finish["finish_reason"] == "stop"
        assert finish["finish_detail"] == {"type": "not_found"}
        answer = await site.stored(events["accepted"][0]["message"])
        assert (answer["not_found"], answer["can_continue"]) == (True, False)
        none = {"is_cited": False, "marks": []}
        assert answer["passages"] == [passage | none for passage in retrieval["passages"]]
        events = await site.answer("斑马为什么赢得马拉松？")
        assert events["text"][0]["text"].startswith("课程资料中没有找到相关内容。")
        assert site.prompts == []


async def test_another_answer_and_another_question_are_branches(site: Site) -> None:
    first = (await site.answer())["accepted"][0]
    again = await events_of(
        await site.app.chat.regenerate(ALICE, Regenerate(id="r", message=first["message"]))
    )
    (accepted,) = again["accepted"]
    assert accepted["user_message"] == first["user_message"]
    assert accepted["message"] != first["message"]
    edited = await events_of(
        await site.app.chat.edit(
            ALICE, Edit(id="e", message=first["user_message"], text="Where is the lab?")
        )
    )
    (branch,) = edited["accepted"]
    assert branch["conversation"] == first["conversation"]
    assert branch["parent"] is None
    messages = (await site.conversation(first["conversation"]))["messages"]
    assert sum(message["parent"] is None for message in messages) == 2
    assert sum(message["parent"] == first["user_message"] for message in messages) == 2


async def test_the_model_sees_the_branch_that_is_followed(site: Site) -> None:
    first = (await site.answer("Where is the lab, number one?"))["accepted"][0]
    await site.answer("Where is the lab, number two?", conversation=first["conversation"])
    await site.answer(
        "Where is the lab, number three?",
        conversation=first["conversation"],
        parent=first["message"],
    )
    prompt = site.prompts[-1]
    assert "number one?" in prompt
    assert "number two?" not in prompt
    assert prompt.index("number one?") < prompt.index("[1] ") < prompt.index("number three?")
    assert prompt.count("[1] ") == 1, "passages of earlier turns are not repeated"


async def test_history_that_does_not_fit_is_given_up_and_reported(tmp_path: Path) -> None:
    async with open_site(tmp_path, max_model_len=1900, default_max_tokens=64) as site:
        conversation = None
        reports = []
        for turn in range(12):
            events = await site.answer(
                f"When are office hours, asked for the {turn}th time?" + " please" * 10,
                conversation=conversation,
            )
            conversation = events["accepted"][0]["conversation"]
            reports.append(events["context"][0])
            size = events["start"][0]["prompt_tokens"]
            assert size + reports[-1]["reserved"] <= 1900
        last = reports[-1]
        assert last["turns_dropped"] > 0
        assert last["turns_kept"] + last["turns_dropped"] == 11
        assert last["passages_dropped"] == 0
        prompt = site.prompts[-1]
        assert f"the {last['turns_dropped'] - 1}th" not in prompt
        assert f"the {last['turns_dropped']}th" in prompt
        answer = await site.stored(events["accepted"][0]["message"])
    assert answer["context"]["turns_dropped"] == last["turns_dropped"]
    assert [notice["kind"] for notice in answer["notices"]] == ["history_cut"]


async def test_passages_that_do_not_fit_are_left_out_and_reported(tmp_path: Path) -> None:
    question = "When are office hours in room B204, and what do late lab reports lose a day?"
    course = write_course(tmp_path / "course")
    same = (course / "staff.en.md").read_text("utf-8")
    (course / "again.en.md").write_text(f"{same}\nThis is said a second time.\n", "utf-8")
    async with open_site(tmp_path, default_max_tokens=16) as site:
        (roomy,) = (await site.answer(question))["context"]
    assert (roomy["passages_used"], roomy["passages_dropped"]) == (2, 0)
    needed = sum(roomy[part] for part in ("system", "passages", "question", "reserved"))
    async with open_site(tmp_path, max_model_len=needed - 1, default_max_tokens=16) as site:
        events = await site.answer(question)
        (context,), (retrieval,) = events["context"], events["retrieval"]
        assert [passage["used"] for passage in retrieval["passages"]] == [True, False]
        assert (context["passages_used"], context["passages_dropped"]) == (1, 1)
        assert retrieval["dropped"] == 1
        answer = await site.stored(events["accepted"][0]["message"])
    assert answer["passages_dropped"] == 1
    told = {notice["kind"]: notice["en"] for notice in answer["notices"]}
    assert told["passages_left_out"] == "1 of 2 found passages used."


async def test_a_question_longer_than_the_window_is_told_with_all_sizes(tmp_path: Path) -> None:
    async with open_site(tmp_path, max_model_len=1024) as site:
        text = QUESTION + " really?" * 200
        events = await site.answer(text)
        (error,) = events["error"]
        assert error["code"] == "prompt_too_long"
        assert str(len(text)) in error["message"]
        assert "1024" in error["message"]
        assert "finish" not in events
        accepted = events["accepted"][0]
        assert (await site.stored(accepted["user_message"]))["text"] == text
        answer = await site.stored(accepted["message"])
        assert (answer["state"], answer["finish_detail"]["code"]) == ("error", "prompt_too_long")
        assert not answer["can_continue"]
        later = await site.answer(conversation=accepted["conversation"], max_tokens=8)
    assert later["finish"][0]["finish_reason"] == "length"


async def test_an_engine_that_fails_leaves_one_error_and_the_text_so_far(tmp_path: Path) -> None:
    async with open_site(tmp_path, script={"fail_after": 3}) as site:
        events = await site.answer()
        (error,) = events["error"]
        assert error["code"] == "internal"
        assert "finish" not in events
        answer = await site.stored(events["accepted"][0]["message"])
    assert answer["state"] == "error"
    assert answer["text"] == events["text"][0]["text"] != ""


async def test_a_refused_question_may_be_asked_again_under_its_id(tmp_path: Path) -> None:
    """It got the stored refusal again, later even as a `finish` without usage."""
    for folder, ttl_s in ((tmp_path / "kept", 600.0), (tmp_path / "gone", 0.0)):
        async with open_site(folder, script=SLOW, run_log_ttl_s=ttl_s) as site:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(site.app.service.generation, "submit", _full)
                refused = await site.answer(id="once")
            (error,) = refused["error"]
            assert (error["code"], error["retryable"]) == ("queue_full", True)
            events = await site.answer(id="once")
            assert events["finish"][0]["finish_detail"] == {"type": "eos"}
            (accepted,), (before,) = events["accepted"], refused["accepted"]
            assert accepted["conversation"] == before["conversation"]
            assert accepted["user_message"] == before["user_message"], "asked once"
            again = await site.answer(id="once")
            assert again["accepted"][0]["message"] == accepted["message"]
            messages = (await site.conversation(accepted["conversation"]))["messages"]
            assert [one["state"] for one in messages] == ["finished", "error", "finished"]


async def test_a_full_or_stopped_engine_is_told_before_anything_is_stored(
    tmp_path: Path,
) -> None:
    slots: dict[str, Any] = {"max_num_seqs": 1, "max_queued_requests": 0}
    async with open_site(tmp_path, lambda _: "x" * 4000, script=SLOW, **slots) as site:
        chat, engine = site.app.chat, site.app.engine
        running = await chat.ask(ALICE, site.ask(id="first"))
        while engine.stats.num_running == 0:  # noqa: ASYNC110 -- counters have no event
            await asyncio.sleep(0.005)
        with pytest.raises(QueueFullError) as full:
            await chat.ask(BOB, site.ask(id="second"))
        assert full.value.retryable
        assert full.value.retry_after_ms
        assert await chat.ask(ALICE, site.ask(id="first")) is running
        assert await site.app.messages.answer_to_client_id(BOB, "second") is None
        running.cancel()
        await events_of(running)
        await engine.shutdown(0)
        with pytest.raises(ShuttingDownError):
            await chat.ask(BOB, site.ask(id="second"))
        assert await site.app.messages.answer_to_client_id(BOB, "second") is None


async def test_nobody_is_taken_in_while_a_material_is_stored_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end waited for the library first, and new questions were taken for as long."""
    async with open_site(tmp_path) as site, site.client() as client:
        stop, stored, storing = site.app.library.stop, asyncio.Event(), asyncio.Event()

        async def stop_late() -> None:
            storing.set()
            await stored.wait()
            await stop()

        monkeypatch.setattr(site.app.library, "stop", stop_late)
        ending = asyncio.create_task(site.app.drain())
        await storing.wait()
        try:
            ready = await client.get("/ready")
            assert (ready.status_code, ready.json()["state"]) == (503, "draining")
            with pytest.raises(ShuttingDownError):
                await site.app.chat.ask(ALICE, site.ask())
        finally:
            stored.set()
            await ending


def _full(*_args: object, **_options: object) -> object:
    raise QueueFullError("full", retry_after_ms=1000)


async def test_a_final_error_is_told_again_as_an_error(tmp_path: Path) -> None:
    async with open_site(tmp_path, max_model_len=1024) as site:
        first = await site.answer(QUESTION + " really?" * 200, id="long")
    async with open_site(tmp_path, max_model_len=1024) as site:
        again = await site.answer(QUESTION + " really?" * 200, id="long")
        assert "finish" not in again
        for name in ("code", "message", "retryable", "id"):
            assert again["error"][0][name] == first["error"][0][name]


async def test_a_question_too_long_is_told_so_even_where_nothing_is_found(tmp_path: Path) -> None:
    """It was answered with "not found in the materials"."""
    async with open_site(tmp_path, not_found_score=1.0, max_model_len=1024) as site:
        for size in (1100, 1_000_000):
            events = await site.answer("z" * size)
            assert events["error"][0]["code"] == "prompt_too_long"
            assert "finish" not in events


async def test_the_cache_bounds_the_context(tmp_path: Path) -> None:
    """The prompt was fitted to a window that the KV cache could not hold."""
    async with open_site(tmp_path, lambda _: "x" * 5000, kv_cache_tokens=1600) as site:
        events = await site.answer(max_tokens=4000)
        (context,), (finish,) = events["context"], events["finish"]
        assert context["window"] == 1600
        assert events["start"][0]["max_tokens"] + finish["usage"]["prompt_tokens"] == 1600
        assert finish["finish_reason"] == "length"
        assert not finish["can_continue"]
        async with site.client() as client:
            assert (await client.get("/api/status")).json()["model"]["window"] == 1600


async def test_an_end_that_the_database_refuses_is_stored_when_it_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_site(tmp_path) as site:
        messages = site.app.messages
        finish, failures = messages.finish, [1]

        async def failing(answer_id: str, outcome: Outcome) -> None:
            if failures:
                raise OperationalError("UPDATE", None, Exception("database is locked"))
            await finish(answer_id, outcome)

        monkeypatch.setattr(messages, "finish", failing)
        events = await site.answer(id="once")
        assert events["error"][0]["code"] == "internal"
        message = events["accepted"][0]["message"]
        assert (await site.stored(message))["state"] == "running"
        failures.clear()
        again = await site.answer(id="once")
        assert again["accepted"][0]["message"] == message, "the answer that was there"
        stored = await site.stored(message)
    assert (stored["state"], stored["finish_detail"]) == ("finished", {"type": "eos"})
    assert stored["text"] == again["text"][0]["text"] == events["text"][0]["text"] != ""


@pytest.mark.one_loop
async def test_a_hundred_answers_at_once_are_all_stored(site: Site) -> None:
    """20 conversations with 5 questions each."""

    async def converse(n: int) -> str:
        conversation = None
        for turn in range(5):
            events = await site.answer(
                f"When are office hours, {n}.{turn}?", conversation=conversation
            )
            assert "finish" in events, events
            conversation = events["accepted"][0]["conversation"]
        assert conversation is not None
        return str(conversation)

    conversations = await asyncio.gather(*(converse(n) for n in range(20)))
    for n, conversation in enumerate(conversations):
        messages = (await site.conversation(conversation))["messages"]
        assert [message["text"] for message in messages[::2]] == [
            f"When are office hours, {n}.{turn}?" for turn in range(5)
        ]
        assert {message["state"] for message in messages} == {"finished"}


@pytest.mark.one_loop
async def test_a_part_that_is_not_found_is_told_and_not_asked(tmp_path: Path) -> None:
    missing = "what is the parking fee in Antarctica?"
    text = f"When are the office hours of the lab, and {missing}"
    async with open_site(tmp_path, not_found_score=0.5) as site:
        events = await site.answer(text)
        accepted, (retrieval,) = events["accepted"][0], events["retrieval"]
        again = await events_of(await site.app.chat.ask(ALICE, site.ask(text, id=accepted["id"])))
        stored = await site.stored(accepted["message"])
        (prompt,) = site.prompts
        async with site.client() as client:
            export = f"/api/conversations/{accepted['conversation']}/export?format=md"
            told = [
                (await client.get(path, headers={"accept-language": language})).text
                for path in (export, f"/records/{accepted['message']}")
                for language in ("en", "zh")
            ]
    assert not retrieval["not_found"]
    assert retrieval["not_found_parts"] == stored["not_found_parts"] == [missing]
    assert again["retrieval"] == events["retrieval"]
    assert again["context"] == events["context"]
    assert "Antarctica" not in prompt
    assert "Question: When are the office hours of the lab?" in prompt
    assert [notice["kind"] for notice in stored["notices"]] == ["part_not_found"]
    sentences = ["Nothing in the materials for", "资料中没有找到"] * 2
    for page, words in zip(told, sentences, strict=True):
        assert words in page
