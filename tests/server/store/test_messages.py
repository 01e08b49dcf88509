"""The life of an answer's row, and what a crash leaves."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import select

from server.store.conversations import Conversations
from server.store.courses import Courses
from server.store.database import Database
from server.store.messages import (
    AnswerChangedError,
    GoneError,
    Messages,
    NoSeamError,
    Opened,
    Outcome,
    Partial,
    PassageSnapshot,
    Prepared,
)
from server.store.schema import Feedback, Message, MessageState

pytestmark = pytest.mark.anyio

PASSAGE = PassageSnapshot(1, "p1", "m1", "Syllabus", "§2", "Office hours: Tuesday.", 3.5, 7, True)
PREPARED = Prepared((1, 2, 300_000), {"window": 64}, (PASSAGE,), {"temperature": 0.0}, "model")


@pytest.fixture
def messages(database: Database) -> Messages:
    return Messages(database)


async def _ask(messages: Messages, text: str = "Why?", **options: str) -> Opened:
    return await messages.open_question("u1", text, course_id=None, **options)  # type: ignore[arg-type]


async def _get(messages: Messages, message_id: str) -> Message:
    message = await messages.get("u1", message_id, with_tokens=True)
    assert message is not None
    return message


async def test_an_answer_from_question_to_end(messages: Messages) -> None:
    opened = await _ask(messages, client_id="key")
    await messages.prepare(opened.answer_id, PREPARED)
    await messages.save_partials([Partial(opened.answer_id, "Tue", (9,))])
    running = await _get(messages, opened.answer_id)
    assert (running.state, running.text, running.token_ids) == ("running", "Tue", (9,))

    outcome = Outcome(
        MessageState.FINISHED, "stop", {"type": "eos"}, "Tuesday.", (9, 10), {"n": 1}, {}, 512
    )
    await messages.finish(opened.answer_id, outcome)
    answer = await _get(messages, opened.answer_id)
    assert (answer.state, answer.text, answer.token_ids) == ("finished", "Tuesday.", (9, 10))
    assert answer.prompt_token_ids == (1, 2, 300_000)
    assert answer.context == {"window": 64}
    assert answer.max_tokens == 512
    (passage,) = (await messages.passages([opened.answer_id]))[opened.answer_id]
    assert (passage.text, passage.score, passage.used) == ("Office hours: Tuesday.", 3.5, True)
    found = await messages.answer_to_client_id("u1", "key")
    assert found is not None
    assert found.id == opened.answer_id
    assert await messages.answer_to_client_id("u2", "key") is None


async def test_a_late_partial_does_not_undo_the_end(messages: Messages) -> None:
    opened = await _ask(messages)
    await messages.finish(
        opened.answer_id, Outcome(MessageState.FINISHED, "stop", {"type": "eos"}, "whole", (1, 2))
    )
    await messages.save_partials([Partial(opened.answer_id, "who", (1,))])
    assert (await _get(messages, opened.answer_id)).text == "whole"


async def test_a_question_follows_the_latest_answer(messages: Messages) -> None:
    first = await _ask(messages, "q1")
    second = await _ask(messages, "q2", conversation_id=first.conversation_id)
    assert second.parent_id == first.answer_id
    branch = await messages.open_question(
        "u1",
        "q1 edited",
        course_id=None,
        conversation_id=first.conversation_id,
        follow_latest=False,
    )
    assert branch.parent_id is None
    path = await messages.path(second.answer_id)
    assert [message.id for message in path] == [
        first.question_id,
        first.answer_id,
        second.question_id,
        second.answer_id,
    ]


async def test_another_answer_is_a_sibling(messages: Messages) -> None:
    first = await _ask(messages)
    second = await messages.open_answer(first.question_id)
    assert second.question_id == first.question_id
    assert second.answer_id != first.answer_id
    with pytest.raises(GoneError):
        await messages.open_answer("nowhere")


async def test_reopening_keeps_the_text_and_marks_the_seam(messages: Messages) -> None:
    opened = await _ask(messages)
    await messages.finish(
        opened.answer_id,
        Outcome(MessageState.FINISHED, "length", {"type": "max_tokens"}, "half", (1,)),
    )
    before = await _get(messages, opened.answer_id)
    await messages.reopen(before, options={"max_tokens": 9}, client_id="more")
    answer = await _get(messages, opened.answer_id)
    assert (answer.state, answer.text, answer.seams) == ("running", "half", [4])
    assert answer.options == {"max_tokens": 9}
    with pytest.raises(AnswerChangedError):
        await messages.reopen(before, options={}, client_id="again")
    with pytest.raises(AnswerChangedError):
        await messages.undo(opened.answer_id, key="k")


async def test_an_undo_restores_everything_but_once_under_a_key(messages: Messages) -> None:
    opened = await _ask(messages)
    await messages.prepare(opened.answer_id, PREPARED)
    cut = {"type": "max_tokens"}
    first = Outcome(
        *(MessageState.FINISHED, "length", cut, "Tue", (9, 10), {"total_tokens": 5}, {"t": 1}, 2),
        thinking="Hm.",
        num_told=6,
        context={"window": 64, "window_used": 5},
        is_compared=True,
        citations=[{"n": 1, "start": 0, "end": 3, "marks": [[0, 5]], "by": "match"}],
        marks={1: [[0, 5]]},
    )
    await messages.finish(opened.answer_id, first)
    before = await _get(messages, opened.answer_id)
    for key, text in (("k1", "Tuesday"), ("k2", "Tuesday, 2 pm.")):
        answer = await _get(messages, opened.answer_id)
        await messages.reopen(answer, options={"seed": 1}, client_id=f"more {key}")
        whole = Outcome(
            *(MessageState.STOPPED, "abort", {"type": "cancelled"}, text, (9, 10, 11), {}, {}, 8),
            num_told=3 + len(text),
            context={"window": 64, "window_used": 9},
            is_compared=True,
            citations=[] if key == "k1" else None,
        )
        await messages.finish(opened.answer_id, whole)
        # What was said of less text is no longer said, also where nothing is said of the whole.
        assert (await _get(messages, opened.answer_id)).citations == whole.citations
        (passage,) = (await messages.passages([opened.answer_id]))[opened.answer_id]
        assert (passage.is_cited, passage.marks) == (False, None)
        await messages.undo(opened.answer_id, key=key)
        await messages.undo(opened.answer_id, key=key)
        after = await _get(messages, opened.answer_id)
        for column in Message.__table__.columns:
            if column.name not in ("updated_at", "undo_id"):
                assert getattr(after, column.name) == getattr(before, column.name), column.name
        (passage,) = (await messages.passages([opened.answer_id]))[opened.answer_id]
        assert (passage.is_cited, passage.marks) == (True, [[0, 5]])
        assert after.updated_at > before.updated_at
    with pytest.raises(NoSeamError):
        await messages.undo(opened.answer_id, key="k3")


async def test_a_crash_leaves_interrupted_answers_with_their_text(
    messages: Messages, database: Database, database_url: str
) -> None:
    dead = await _ask(messages, "q1")
    await messages.save_partials([Partial(dead.answer_id, "so far", (5, 6))])
    done = await _ask(messages, "q2")
    await messages.finish(
        done.answer_id, Outcome(MessageState.FINISHED, "stop", {"type": "eos"}, "whole", (7,))
    )
    await database.close()

    again = Database(database_url)
    await again.open()
    messages = Messages(again)
    assert await messages.interrupt_running() == 1
    assert await messages.interrupt_running() == 0
    cut, whole = await _get(messages, dead.answer_id), await _get(messages, done.answer_id)
    assert (cut.state, cut.text, cut.token_ids) == ("interrupted", "so far", (5, 6))
    assert (cut.finish_reason, cut.finish_detail) == ("abort", {"type": "interrupted"})
    assert (whole.state, whole.text) == ("finished", "whole")
    assert (await _get(messages, dead.question_id)).text == "q1"
    await again.close()


async def test_what_belongs_to_somebody_else_is_not_there(
    messages: Messages, database: Database
) -> None:
    opened = await _ask(messages)
    conversations = Conversations(database)
    assert await messages.get("u2", opened.answer_id) is None
    assert await conversations.get("u2", opened.conversation_id) is None
    assert await conversations.of_user("u2") == []
    assert not await conversations.delete("u2", opened.conversation_id)
    (mine,) = await conversations.of_user("u1")
    assert mine.num_messages == 2
    assert await conversations.delete("u1", opened.conversation_id)
    assert await messages.get("u1", opened.answer_id) is None


async def test_feedback_replaces_what_was_said_before(
    messages: Messages, database: Database
) -> None:
    async def stored() -> list[tuple[str, str, str | None]]:
        async with database.session() as session:
            rows = await session.scalars(select(Feedback))
            return [(row.message_id, row.value, row.note) for row in rows]

    opened, other = await _ask(messages), await _ask(messages)
    await messages.put_feedback("u1", other.answer_id, "up", None)
    untouched = (other.answer_id, "up", None)
    await messages.put_feedback("u1", opened.answer_id, "up", None)
    assert sorted(await stored()) == sorted([untouched, (opened.answer_id, "up", None)])
    await messages.put_feedback("u1", opened.answer_id, "down", "wrong day\x00")
    (row,) = [row for row in await stored() if row != untouched]
    assert row[:2] == (opened.answer_id, "down")
    assert row[2] is not None
    assert row[2].startswith("wrong day")
    assert "\x00" not in row[2]
    await messages.put_feedback("u1", opened.answer_id, None, None)
    assert await stored() == [untouched]


async def test_more_messages_than_a_statement_has_parameters(messages: Messages) -> None:
    first, last = (await _ask(messages)).answer_id, (await _ask(messages)).answer_id
    for answer_id in (first, last):
        await messages.prepare(answer_id, PREPARED)
        await messages.put_feedback("u1", answer_id, "up", None)
    ids = [first, *map(str, range(33_000)), last]
    assert set(await messages.passages(ids)) == {first, last}
    assert set(await messages.feedback("u1", ids)) == {first, last}


@pytest.mark.one_loop
async def test_a_hundred_answers_at_once_lose_nothing(messages: Messages) -> None:
    """20 conversations of 5 questions, all writing at once."""

    async def converse(n: int) -> str:
        conversation = ""
        for turn in range(5):
            options = {"conversation_id": conversation} if conversation else {}
            opened = await _ask(messages, f"q{n}.{turn}", **options)
            conversation = opened.conversation_id
            await messages.prepare(opened.answer_id, PREPARED)
            await messages.save_partials([Partial(opened.answer_id, "a", (1,))])
            await messages.finish(
                opened.answer_id,
                Outcome(MessageState.FINISHED, "stop", {"type": "eos"}, f"a{n}.{turn}", (1, 2)),
            )
        return conversation

    conversations = await asyncio.gather(*(converse(n) for n in range(20)))
    for n, conversation in enumerate(conversations):
        texts = [message.text for message in await messages.of_conversation(conversation)]
        assert texts == [f"{kind}{n}.{turn}" for turn in range(5) for kind in "qa"]


async def test_courses_are_brought_up_to_date_by_slug(database: Database) -> None:
    courses = Courses(database)
    made = await courses.put("sample", title="Old")
    changed = await courses.put("sample", title="New", suggestions=[{"en": "When?"}])
    assert changed.id == made.id
    ((course, num_materials),) = await courses.all()
    assert (course.title, course.suggestions, num_materials) == ("New", [{"en": "When?"}], 0)
    for key in (made.id, "sample"):
        found = await courses.get(key)
        assert found is not None
        assert found.id == made.id
    assert await courses.get("other") is None
