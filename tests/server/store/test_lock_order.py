"""Who writes into a conversation and who deletes it lock its rows in one order: where writers do
not take turns, none of them is thrown out of a deadlock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from server.store.conversations import Conversations, put_conversation
from server.store.courses import Courses
from server.store.database import Database
from server.store.messages import GoneError, Messages, Opened, Outcome
from server.store.schema import Conversation, Course, MessageState, User

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

ROUNDS = 12
USER = "alice"


async def answered(database: Database) -> Opened:
    """A cut answer in a new conversation of the user's."""
    messages = Messages(database)
    opened = await messages.open_question(USER, "?", course_id=None, client_id="c0")
    end = {"type": "max_tokens"}
    await messages.finish(
        opened.answer_id, Outcome(MessageState.FINISHED, "length", end, "a", (1,))
    )
    return opened


async def go_on(database: Database, opened: Opened) -> None:
    messages = Messages(database)
    answer = await messages.get(USER, opened.answer_id)
    if answer is not None:
        await messages.reopen(answer, options={}, client_id="c1")


async def go_on_and_undo(database: Database, opened: Opened) -> None:
    messages = Messages(database)
    await go_on(database, opened)
    end = {"type": "max_tokens"}
    outcome = Outcome(MessageState.FINISHED, "length", end, "ab", (1, 2))
    await messages.finish(opened.answer_id, outcome)
    await messages.undo(opened.answer_id, key="u1")


async def ask(database: Database, opened: Opened) -> None:
    await Messages(database).open_question(
        USER, "?", course_id=None, conversation_id=opened.conversation_id
    )


async def judge(database: Database, opened: Opened) -> None:
    await Messages(database).put_feedback(USER, opened.answer_id, "up", None)


Write = Callable[[Database, Opened], Awaitable[None]]


@pytest.mark.parametrize("write", [go_on, go_on_and_undo, ask, judge])
@pytest.mark.parametrize("way", ["conversation", "person"])
async def test_a_deletion_and_what_is_written_meanwhile(
    database: Database, write: Write, way: str
) -> None:
    for _ in range(ROUNDS):
        opened = await answered(database)

        async def delete(conversation: str = opened.conversation_id) -> None:
            if way == "person":
                await Conversations(database).erase_user(USER)
            else:
                await Conversations(database).delete(USER, conversation)

        told = await asyncio.gather(
            write(database, opened), delete(), ask(database, opened), return_exceptions=True
        )
        assert all(one is None or isinstance(one, GoneError) for one in told), told
        assert await Messages(database).get(USER, opened.answer_id) is None


async def test_a_course_waits_for_a_conversation_that_comes_into_it(database: Database) -> None:
    course = Course(slug="course", title="Course")
    async with database.transaction() as session:
        session.add_all([User(id=USER), course])
    courses = Courses(database)
    async with database.transaction() as session:
        conversation = Conversation(user_id=USER, course_id=course.id, title="")
        await put_conversation(session, conversation)
        deleting = asyncio.create_task(courses.delete(course.id))
        done, _ = await asyncio.wait([deleting], timeout=0.2)
        assert not done
    assert await deleting is False
    await Conversations(database).delete(USER, conversation.id)
    assert await courses.delete(course.id) is True
