"""A conversation that goes on in a new one, which begins with a summary of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.app.prompts import Turn
from server.app.summary_prompts import extract
from server.service.errors import (
    BadRequestError,
    ConversationBusyError,
    NotFoundError,
    QueueFullError,
)
from server.service.messages import Carry, Continue, Edit, Regenerate
from tests.server.app.site import ALICE, BOB, QUESTION, Site, events_of, kill, new_key, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

SUMMARY = "The student asked when the office hours are."
OPEN = ("=== Conversation ===", "=== 对话 ===")

Events = dict[str, list[dict[str, Any]]]


def said(prompt: str) -> Any:
    """A summary where one is asked for."""
    return SUMMARY if any(mark in prompt for mark in OPEN) else "On Tuesday, in room B204 [1]."


def nothing(prompt: str) -> Any:
    return "" if any(mark in prompt for mark in OPEN) else "On Tuesday, in room B204. Ask Ann."


async def carry(site: Site, message: str, *, id: str | None = None) -> Events:
    carried = await site.app.chat.carry(ALICE, Carry(id=id or new_key(), message=message))
    return await events_of(carried)


async def talk(site: Site, *questions: str) -> str:
    """Asks one after the other; the last answer."""
    fields: dict[str, Any] = {}
    for question in questions:
        accepted = (await site.answer(question, **fields))["accepted"][0]
        fields = {"conversation": accepted["conversation"]}
    answer: str = accepted["message"]
    return answer


def asked_for(site: Site) -> list[str]:
    """The prompts of summaries, in order."""
    return [prompt for prompt in site.prompts if any(mark in prompt for mark in OPEN)]


async def test_a_summary_begins_a_conversation_that_goes_on(
    tmp_path: Path, database_url: str
) -> None:
    async with open_site(tmp_path / "data", said, database_url=database_url) as site:
        answer = await talk(site, QUESTION, "And what about late work?")
        events = await carry(site, answer)
        accepted, finish = events["accepted"][0], events["finish"][0]
        assert accepted["carried_from"] == answer
        assert (accepted["user_message"], accepted["parent"]) == (None, None)
        assert events["text"][0]["text"] == SUMMARY
        assert finish["finish_detail"] == {"type": "eos"}
        assert not finish["can_continue"]

        source = await site.conversation(await of(site, answer))
        made = await site.conversation(accepted["conversation"])
        assert made["title"] == f"{QUESTION} (2)"
        assert made["carried_from"] == {
            "message": answer,
            "conversation": source["id"],
            "title": QUESTION,
        }
        assert source["carried_from"] is None
        link = {"message": answer, "conversation": made["id"], "title": made["title"]}
        assert (source["carried_to"], made["carried_to"]) == ([link], [])
        async with site.client() as client:
            listed = (await client.get("/api/conversations")).json()["conversations"]
        assert [one["carried_from"] for one in listed] == [answer, None]
        (summary,) = made["messages"]
        assert (summary["role"], summary["parent"], summary["text"]) == ("summary", None, SUMMARY)
        assert summary["context"]["turns"] == 2
        assert not summary["context"]["is_extract"]
        for name in ("finish_detail", "usage", "timing", "can_continue", "can_undo"):
            assert summary[name] == finish[name]

        asked = await site.answer("When again?", conversation=made["id"])
        assert asked["accepted"][0]["parent"] == summary["id"], "it follows the summary"
        context = asked["context"][0]
        assert 0 < context["summary"] == context["history"]
        assert (context["turns_kept"], context["turns_dropped"]) == (0, 0)
        assert context["view_from"] == asked["accepted"][0]["user_message"]
        assert SUMMARY in site.prompts[-1]
        later = await site.answer("And where?", conversation=made["id"])
        assert later["context"][0]["turns_kept"] == 1
        assert later["context"][0]["summary"] == context["summary"]
        assert site.prompts[-1].index(SUMMARY) < site.prompts[-1].index("When again?")


async def of(site: Site, message: str) -> str:
    row = await site.app.messages.get(ALICE, message)
    assert row is not None
    return row.conversation_id


async def test_what_is_longer_than_the_window_is_summarised_in_parts(tmp_path: Path) -> None:
    def long_winded(prompt: str) -> Any:
        if any(mark in prompt for mark in OPEN):
            return f"Summary number {1 + prompt.count('Summary number')}."
        return "The office hours are on Tuesday. " * 8

    async with open_site(tmp_path, long_winded, max_model_len=1024) as site:
        answer = await talk(site, *(f"Question {n} about office hours?" for n in range(5)))
        events = await carry(site, answer)
        prompts = asked_for(site)
        assert len(prompts) > 1
        for n in range(5):
            holding = [prompt for prompt in prompts if f"Question {n} " in prompt]
            assert len(holding) == 1, "each turn is read once"
        assert "Summary number" not in prompts[0]
        for n, prompt in enumerate(prompts[1:], 1):
            assert f"Summary number {min(n, 2)}." in prompt
        # Only the last one is told; what came before is progress.
        assert events["text"][0]["text"].count("Summary number") == 1
        assert len(events["start"]) == 1
        assert events["progress"]
        finish = events["finish"][0]
        assert finish["usage"]["prompt_tokens"] > events["start"][0]["prompt_tokens"]
        assert finish["window_used"] <= 1024
        summary = await site.stored(events["accepted"][0]["message"])
        assert (summary["context"]["turns"], summary["context"]["turns_left_out"]) == (5, 0)


async def test_of_a_very_long_conversation_the_oldest_turns_are_left_out_and_counted(
    tmp_path: Path,
) -> None:
    def long_winded(prompt: str) -> Any:
        return SUMMARY if any(mark in prompt for mark in OPEN) else "On Tuesday at noon. " * 40

    async with open_site(tmp_path, long_winded, max_model_len=1024) as site:
        answer = await talk(site, *(f"Question {n:02} about office hours?" for n in range(11)))
        events = await carry(site, answer)
        summary = await site.stored(events["accepted"][0]["message"])
        left_out = summary["context"]["turns_left_out"]
        assert 0 < left_out < 11
        assert events["finish"][0]["turns_left_out"] == left_out
        assert len(asked_for(site)) == 8
        assert "Question 10" in asked_for(site)[-1]
        assert not any(f"Question {left_out - 1:02}" in prompt for prompt in asked_for(site))
        assert f"Question {left_out:02}" in asked_for(site)[0]


async def test_a_chinese_conversation_is_summarised_in_chinese(tmp_path: Path) -> None:
    async with open_site(tmp_path, said) as site:
        await carry(site, await talk(site, "实验室的答疑时间是什么时候？"))
        (prompt,) = asked_for(site)
        assert "请简短地总结" in prompt
        assert "学生：实验室的答疑时间" in prompt


async def test_where_the_model_says_nothing_the_questions_stand_in(tmp_path: Path) -> None:
    async with open_site(tmp_path, nothing) as site:
        answer = await talk(site, QUESTION, "Where is it?")
        events = await carry(site, answer)
        text = events["text"][0]["text"]
        assert "without the model" in text
        assert f"- {QUESTION} → On Tuesday, in room B204." in text
        assert "Ask Ann" not in text
        assert events["finish"][0]["finish_detail"] == {"type": "extract"}
        accepted = events["accepted"][0]
        summary = await site.stored(accepted["message"])
        assert (summary["text"], summary["state"]) == (text, "finished")
        assert summary["context"]["is_extract"]
        await site.answer("When again?", conversation=accepted["conversation"])
        assert text in site.prompts[-1]


async def test_a_summary_is_a_part_of_the_next_one(tmp_path: Path) -> None:
    async with open_site(tmp_path, said) as site:
        first = (await carry(site, await talk(site, QUESTION)))["accepted"][0]
        asked = await site.answer("When again?", conversation=first["conversation"])
        second = (await carry(site, asked["accepted"][0]["message"]))["accepted"][0]
        assert SUMMARY in asked_for(site)[-1]
        assert (await site.conversation(second["conversation"]))["title"] == f"{QUESTION} (3)"


async def test_a_repeated_message_makes_no_second_conversation(tmp_path: Path) -> None:
    async with open_site(tmp_path, said) as site:
        key, key_of_answer = new_key(), new_key()
        answer = (await site.answer(id=key_of_answer))["accepted"][0]["message"]
        first = await carry(site, answer, id=key)
        assert (await carry(site, answer, id=key))["accepted"] == first["accepted"]
    async with open_site(tmp_path, said) as site:  # the log of the run is gone
        again = await carry(site, answer, id=key)
        for name in ("conversation", "message", "carried_from"):
            assert again["accepted"][0][name] == first["accepted"][0][name]
        assert again["text"] == first["text"]
        assert {**again["finish"][0], "run": "", "seq": 0} == {
            **first["finish"][0],
            "run": "",
            "seq": 0,
        }
        assert asked_for(site) == []
        async with site.client() as client:
            listed = (await client.get("/api/conversations")).json()["conversations"]
        assert len(listed) == 2
        error = (await carry(site, answer, id=key_of_answer))["error"][0]
        assert (error["code"], error["param"]) == ("bad_request", "id")


async def test_a_summary_that_died_with_its_process_is_written_when_asked_again(
    tmp_path: Path,
) -> None:
    key = new_key()
    async with open_site(tmp_path / "a", said, script={"token_s": 0.05}) as site:
        answer = await talk(site, QUESTION)
        run = await site.app.chat.carry(ALICE, Carry(id=key, message=answer))
        async for event in run.events():
            if event.type == "accepted":
                left = kill(tmp_path / "a", tmp_path / "b")
    async with open_site(left, said) as site:
        events = await carry(site, answer, id=key)
        assert events["text"][0]["text"] == SUMMARY
        async with site.client() as client:
            listed = (await client.get("/api/conversations")).json()["conversations"]
        assert len(listed) == 2


async def test_a_stopped_summary_is_still_one(tmp_path: Path) -> None:
    async with open_site(tmp_path, said, script={"token_s": 0.05}) as site:
        answer = await talk(site, QUESTION)
        run = await site.app.chat.carry(ALICE, Carry(id=new_key(), message=answer))
        run.cancel()
        events = await events_of(run)
        assert events["text"][0]["text"].strip()
        assert events["finish"][0]["finish_detail"]["type"] in ("extract", "cancelled")
        summary = await site.stored(events["accepted"][0]["message"])
        assert summary["state"] in ("finished", "stopped")


async def regenerate(site: Site, message: str, *, id: str) -> Events:
    again = await site.app.chat.regenerate(ALICE, Regenerate(id=id, message=message))
    return await events_of(again)


async def test_a_summary_that_failed_is_written_again_in_its_place(tmp_path: Path) -> None:
    """The page offers to try again, and was refused."""
    async with open_site(tmp_path, said) as site:
        answer = await talk(site, QUESTION)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(site.app.service.generation, "submit", _full)
            failed = await carry(site, answer)
        accepted, error = failed["accepted"][0], failed["error"][0]
        assert error["retryable"]
        again = await regenerate(site, accepted["message"], id="again")
        ids = ("conversation", "message", "user_message", "parent", "carried_from")
        assert {name: again["accepted"][0][name] for name in ids} == {
            name: accepted[name] for name in ids
        }
        assert again["text"][0]["text"] == SUMMARY
        stored = await site.stored(accepted["message"])
        assert (stored["text"], stored["state"]) == (SUMMARY, "finished")
        assert len((await site.conversation(accepted["conversation"]))["messages"]) == 1
    async with open_site(tmp_path, said) as site:  # the log of the run is gone
        told = await regenerate(site, accepted["message"], id="again")
        assert asked_for(site) == []
        assert told["text"] == again["text"]
        assert told["start"][0]["base_chars"] == 0


async def test_a_stopped_summary_is_written_again_unless_its_source_is_gone(
    tmp_path: Path,
) -> None:
    async with open_site(tmp_path, said, script={"token_s": 0.05, "token_chars": 4}) as site:
        answer = await talk(site, QUESTION)
        run = await site.app.chat.carry(ALICE, Carry(id=new_key(), message=answer))
        async for event in run.events():
            if event.type == "delta":
                run.cancel()
        accepted = (await events_of(run))["accepted"][0]
        assert (await site.stored(accepted["message"]))["state"] == "stopped"
        other = await carry(site, answer)
        events = await regenerate(site, accepted["message"], id="again")
        assert events["text"][0]["text"] == SUMMARY
        async with site.client() as client:
            await client.delete(f"/api/conversations/{await of(site, answer)}")
        (error,) = (await regenerate(site, other["accepted"][0]["message"], id="gone"))["error"]
        assert (error["code"], error["param"]) == ("not_found", "message")
        assert (await site.stored(other["accepted"][0]["message"]))["text"] == SUMMARY


def _full(*_args: object, **_options: object) -> object:
    raise QueueFullError("full", retry_after_ms=1000)


async def test_what_cannot_be_done_with_it_is_refused(tmp_path: Path) -> None:
    async with open_site(tmp_path, said) as site:
        chat = site.app.chat
        answer = await talk(site, QUESTION)
        accepted = (await carry(site, answer))["accepted"][0]
        summary = accepted["message"]
        for message in (
            chat.carry(ALICE, Carry(id=new_key(), message=summary)),
            chat.edit(ALICE, Edit(id=new_key(), message=summary, text="Another")),
        ):
            with pytest.raises(BadRequestError):
                await message
        error = (await regenerate(site, summary, id=new_key()))["error"][0]
        assert (error["code"], error["param"]) == ("bad_request", "message")
        assert (await site.stored(summary))["text"] == SUMMARY
        run = await chat.continue_(ALICE, Continue(id=new_key(), message=summary))
        assert (await events_of(run))["error"][0]["code"] == "bad_request"
        with pytest.raises(NotFoundError):
            await chat.carry(BOB, Carry(id=new_key(), message=answer))


async def test_an_edited_first_question_still_follows_the_summary(tmp_path: Path) -> None:
    async with open_site(tmp_path, said) as site:
        accepted = (await carry(site, await talk(site, QUESTION)))["accepted"][0]
        first = await site.answer("When again?", conversation=accepted["conversation"])
        edit = Edit(
            id=new_key(), message=first["accepted"][0]["user_message"], text="When exactly?"
        )
        events = await events_of(await site.app.chat.edit(ALICE, edit))
        assert events["accepted"][0]["parent"] == accepted["message"]
        assert SUMMARY in site.prompts[-1]


async def test_a_running_or_an_empty_conversation_is_not_carried_on(tmp_path: Path) -> None:
    async with open_site(tmp_path, said, script={"token_s": 0.05}) as site:
        run = await site.app.chat.ask(ALICE, site.ask())
        assert (await anext(run.events())).type == "accepted"
        assert run.message is not None
        with pytest.raises(ConversationBusyError):
            await site.app.chat.carry(ALICE, Carry(id=new_key(), message=run.message))
        await events_of(run)
    async with open_site(tmp_path / "b", not_found_score=2.0) as site:
        answer = await talk(site, "Zebras?")  # not found: it says nothing of the materials
        assert (await carry(site, answer))["error"][0]["code"] == "bad_request"
        async with site.client() as client:
            assert len((await client.get("/api/conversations")).json()["conversations"]) == 1


async def test_a_summary_is_no_record(tmp_path: Path) -> None:
    async with open_site(tmp_path, said) as site:
        teacher = await site.account("teacher", "tia", "demo")
        await carry(site, await talk(site, QUESTION))
        await site.app.record_indexer.index_waiting()
        async with site.client(teacher) as client:
            found = (await client.get("/api/courses/demo/records")).json()
        assert found["counts"]["total"] == 1


def test_an_extract_keeps_the_newest_and_its_size() -> None:
    turns = [Turn(f"Question {n}?", f"Answer {n}. More of it.") for n in range(100)]
    text = extract("en", turns, "Before that.", 400)
    assert len(text) < 600
    assert "- Question 99? → Answer 99." in text
    assert text.index("Question 98?") < text.index("Question 99?")
    assert "Question 0?" not in text
    assert "More of it" not in text
    assert "Before that." in extract("zh", turns[:1], "Before that.", 2000)
