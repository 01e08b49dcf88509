"""What is kept of a person can be taken away, and goes with all that hangs on it; and old
conversations go by themselves."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select, text, update

from server.app.retention import Retention
from server.service.messages import Feedback
from server.store.column_types import utc_now
from server.store.conversations import Conversations
from server.store.courses import Courses
from server.store.database import Database
from server.store.messages import GoneError, Messages
from server.store.schema import (
    Conversation,
    Enrolment,
    LoginSession,
    Material,
    Message,
    MessagePassage,
    User,
)
from server.store.schema import Feedback as FeedbackRow
from tests.server.app.site import ALICE, QUESTION, Site, events_of, new_key, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


async def count(database: Database, table: type[object]) -> int:
    async with database.session() as session:
        return await session.scalar(select(func.count()).select_from(table)) or 0


async def num_words(database: Database) -> int:
    name = "record_fts" if database.is_sqlite else "record_words"
    async with database.session() as session:
        return await session.scalar(text(f"SELECT count(*) FROM {name}")) or 0


async def test_a_person_goes_with_all_that_is_theirs(tmp_path: Path, database_url: str) -> None:
    async with open_site(tmp_path, database_url=database_url) as site:
        database = site.app.database
        student = await site.account("student", "Ann", "demo")
        await site.answer()
        asked = await events_of(await site.app.chat.ask(student, site.ask()))
        answer = asked["accepted"][0]["message"]
        await site.app.chat.feedback(student, Feedback(id=new_key(), message=answer, value="up"))
        async with database.transaction() as session:
            await session.execute(update(Material).values(uploaded_by=student))
        await site.app.record_indexer.index_waiting()
        assert await num_words(database) == 2

        await site.app.erasure.erase(student)
        for table, left in (
            (User, 1),
            (Conversation, 1),
            (Message, 2),
            (FeedbackRow, 0),
            (Enrolment, 0),
            (LoginSession, 0),
            (Material, 1),
        ):
            assert await count(database, table) == left, table
        assert await num_words(database) == 1
        async with database.session() as session:
            owners = set(await session.scalars(select(MessagePassage.message_id)))
            assert answer not in owners
            assert set(await session.scalars(select(Material.uploaded_by))) == {None}
        assert not site.app.service.auth.is_valid(student)
        async with site.client(student) as client:
            assert (await client.get("/api/conversations")).status_code == 401
        await site.app.erasure.erase(student)


async def test_an_answer_that_runs_is_stopped_first(tmp_path: Path) -> None:
    async with open_site(tmp_path, script={"token_s": 0.05, "token_chars": 1}) as site:
        student = await site.account("student", "Ann", "demo")
        run = await site.app.chat.ask(student, site.ask())
        async for event in run.events():
            if event.type == "delta":
                break
        await site.app.erasure.erase(student)
        assert run.is_finished
        assert await count(site.app.database, Message) == 0


async def test_a_deleted_account_does_not_come_back_by_a_late_question(
    tmp_path: Path, database_url: str
) -> None:
    async with open_site(tmp_path, database_url=database_url) as site:
        student = await site.account("student", "Ann", "demo")
        await site.app.erasure.erase(student)
        run = await site.app.chat.ask(student, site.ask())
        assert (await events_of(run))["error"][0]["code"] == "unauthorized"
        messages = Messages(site.app.database)
        with pytest.raises(GoneError):
            await messages.open_question(student, "?", course_id=None, is_guest=False)
        assert await count(site.app.database, User) == 0


async def test_one_can_take_home_what_is_kept(tmp_path: Path, database_url: str) -> None:
    async with open_site(tmp_path, database_url=database_url) as site:
        student = await site.account("student", "Ann", "demo")
        await site.answer("Not hers, when are the office hours?")
        answer = (await events_of(await site.app.chat.ask(student, site.ask())))["accepted"][0]
        said = Feedback(id=new_key(), message=answer["message"], value="down", note="没有")
        await site.app.chat.feedback(student, said)
        async with site.client(student) as client:
            reply = await client.get("/api/me/export")
        assert "attachment" in reply.headers["content-disposition"]
        lines = [json.loads(line) for line in reply.text.splitlines()]
        kinds = ["person", "enrolment", "conversation", "message", "message"]
        assert [line["kind"] for line in lines] == kinds
        person, enrolment, _, question, told = lines
        assert (person["name"], person["role"]) == ("Ann", "student")
        assert enrolment["pseudonym"].startswith("Student ")
        assert question["text"] == QUESTION
        assert told["feedback"] == {"value": "down", "note": "没有"}
        assert told["passages"][0]["text"]
        assert "Not hers" not in reply.text
        assert "argon2" not in reply.text


async def _age(site: Site, conversation: str, days: int) -> None:
    async with site.app.database.transaction() as session:
        await session.execute(
            update(Conversation)
            .where(Conversation.id == conversation)
            .values(updated_at=utc_now() - timedelta(days=days))
        )


async def test_old_conversations_go_by_the_course_or_else_by_the_server(
    tmp_path: Path, database_url: str
) -> None:
    async with open_site(tmp_path, database_url=database_url) as site:
        database = site.app.database
        courses, conversations = Courses(database), Conversations(database)
        asked = [(await site.answer())["accepted"][0]["conversation"] for _ in range(3)]
        for conversation, days in zip(asked, (9, 11, 31), strict=True):
            await _age(site, conversation, days)
        await site.app.record_indexer.index_waiting()

        async def left() -> list[str]:
            return [one.conversation.id for one in await conversations.of_user(ALICE)]

        assert await Retention(courses, conversations, days=None).sweep() == 0
        assert await Retention(courses, conversations, days=30).sweep() == 1
        assert await left() == asked[:2]
        course = await courses.get("demo")
        assert course is not None
        await courses.change(course.id, {"retention_days": 10})
        assert await Retention(courses, conversations, days=None).sweep() == 1
        assert await left() == asked[:1]
        assert await num_words(database) == 1
        # The course's own number goes before the server's, also where it is greater.
        await courses.change(course.id, {"retention_days": 40})
        assert await Retention(courses, conversations, days=1).sweep() == 0
        later = utc_now() + timedelta(days=32)
        assert await Retention(courses, conversations, days=1, clock=lambda: later).sweep() == 1
        assert await left() == []
        assert await count(database, Message) == 0


async def test_a_server_sweeps_when_it_starts(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        conversation = (await site.answer())["accepted"][0]["conversation"]
        await _age(site, conversation, 5)
        kept = await site.conversation(conversation)
        assert kept["messages"]
    async with open_site(tmp_path, retention_days=4) as site:
        await site.app.retention.sweep()
        with pytest.raises(AssertionError, match="no such conversation"):
            await site.conversation(conversation)
