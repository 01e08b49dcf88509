"""A database of an earlier version keeps what is in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, select, text
from sqlalchemy.orm import undefer

from server.store.analysis import query_units
from server.store.database import Database
from server.store.messages import Messages, NoSeamError, Outcome
from server.store.passage_index import passage_index, record_index
from server.store.schema import (
    Conversation,
    Course,
    Feedback,
    Material,
    Message,
    MessageState,
    User,
)
from tests.support.postgres import Cluster, skip_without_postgresql

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

_NOW = "2026-11-01 10:00:00+00:00"
# What the first version of the schema held.
_OLD_ROWS: list[tuple[str, dict[str, Any]]] = [
    ("course", {"id": "c1", "slug": "c", "title": "C", "language": "en", "suggestions": "[]"}),
    ("user", {"id": "u1", "role": "student"}),
    (
        "material",
        {
            "id": "m1",
            "course_id": "c1",
            "name": "a.md",
            "title": "A",
            "kind": "markdown",
            "sha256": "0" * 64,
            "text": "文本",
        },
    ),
    (
        "material",
        {
            "id": "m2",
            "course_id": "c1",
            "name": "lab.md",
            "title": "Lab",
            "kind": "lab",
            "week": 3,
            "sha256": "1" * 64,
            "text": "",
        },
    ),
    ("conversation", {"id": "v1", "user_id": "u1", "course_id": "c1", "title": "Why?"}),
    (
        "message",
        {
            "id": "n1",
            "conversation_id": "v1",
            "role": "assistant",
            "text": "Because",
            "state": "finished",
            "finish_reason": "length",
            "finish_detail": json.dumps({"type": "max_tokens", "limit": 3}),
            "seams": "[]",
            "not_found": False,
        },
    ),
    ("feedback", {"id": "f1", "message_id": "n1", "user_id": "u1", "value": "up"}),
    ("feedback", {"id": "f2", "message_id": "n1", "user_id": "u1", "value": "down"}),
]
_WITH_UPDATED_AT = ("conversation", "message")


def _fill(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", "server.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "0001")
    for table, values in _OLD_ROWS:
        names = [*values, "created_at", *(["updated_at"] if table in _WITH_UPDATED_AT else [])]
        shown = [
            f":{name}" if name in values else f"'{_NOW.removesuffix('+00:00')}'" for name in names
        ]
        connection.execute(
            text(f'INSERT INTO "{table}" ({", ".join(names)}) VALUES ({", ".join(shown)})'), values
        )


def _cite(connection: Connection) -> None:
    """Answers of the third version, compared with their passages: (id, how it ended, what was
    found)."""
    config = Config()
    config.set_main_option("script_location", "server.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "0003")
    for name, finish_type, citations in (
        ("whole", "eos", "[]"),
        ("cut", "max_tokens", "[]"),
        ("supported", "max_tokens", '[{"n": 1}]'),
        ("not compared", "error", None),
    ):
        values = {"id": name, "finish_type": finish_type, "citations": citations}
        connection.execute(
            text(
                "INSERT INTO message (id, conversation_id, role, text, state, seams, earlier, "
                "not_found, finish_type, citations, created_at, updated_at) "
                "SELECT :id, conversation_id, role, text, state, seams, earlier, not_found, "
                f":finish_type, {':citations' if citations else 'NULL'}, created_at, updated_at "
                "FROM message WHERE id = 'n1'"
            ),
            {key: value for key, value in values.items() if value is not None},
        )


def _index(connection: Connection) -> None:
    """Words of the third version, where SQLite keeps them."""
    if connection.dialect.name != "sqlite":
        return
    connection.execute(
        text(
            "INSERT INTO passage_fts (title, heading, body, course_id, material_id, passage_id) "
            "VALUES ('', '', 'heron', 'c1', 'm1', 'p1')"
        )
    )
    connection.execute(
        text("INSERT INTO record_fts (words, course_id, answer_id) VALUES ('heron', 'c1', 'n1')")
    )


async def _words_are_forgotten(database: Database) -> None:
    units = query_units("heron")
    passages, records = passage_index(database), record_index(database)
    async with database.transaction() as session:
        assert await passages.search(session, "c1", units, limit=9)
        assert await records.search(session, "c1", units, limit=9) == ["n1"]
        await passages.forget(session, "m1")
        await records.forget(session, ["n1"])
        assert await passages.search(session, "c1", units, limit=9) == []
        assert await records.search(session, "c1", units, limit=9) == []


async def _upgraded(database: Database) -> None:
    async with database.transaction() as session:
        await (await session.connection()).run_sync(_fill)
        await (await session.connection()).run_sync(_cite)
        await (await session.connection()).run_sync(_index)
    await database.migrate()
    async with database.session() as session:
        user = await session.get_one(User, "u1")
        assert (user.role, user.is_disabled, user.login) == ("guest", False, None)
        course = await session.get_one(Course, "c1")
        assert (course.is_open, course.shows_names) == (True, False)
        first = await session.get_one(Material, "m1", options=[undefer(Material.text)])
        assert (first.kind, first.format, first.text) == ("other", "markdown", "文本")
        assert (first.state, first.made_from, first.edited) == ("ready", "", [])
        lab = await session.get_one(Material, "m2")
        assert (lab.kind, lab.format, lab.week) == ("lab", "markdown", 3)
        message = await session.get_one(Message, "n1")
        assert (message.finish_type, message.text) == ("max_tokens", "Because")
        assert (message.thinking, message.num_told, message.earlier) == (None, None, [])
        assert (await session.scalars(select(Feedback.value))).all() == ["down"]
        cited = await session.execute(select(Message.id, Message.citations))
        assert {row.id: row.citations for row in cited} == {
            **{"n1": None, "not compared": None},
            **{"whole": [], "cut": None, "supported": [{"n": 1}]},
        }


async def test_rows_of_the_first_version_are_kept_on_sqlite(tmp_path: Any) -> None:
    database = Database(f"sqlite:///{tmp_path}/old.db")
    await _upgraded(database)
    await _words_are_forgotten(database)
    await database.close()


@pytest.mark.postgres
async def test_rows_of_the_first_version_are_kept_on_postgresql(cluster: Cluster) -> None:
    skip_without_postgresql()
    async with cluster.fresh_url(is_migrated=False) as url:
        database = Database(url)
        await _upgraded(database)
        await database.close()


def _fill_second(connection: Connection) -> None:
    """Continued answers of the second version, which kept no earlier states."""
    _fill(connection)
    config = Config()
    config.set_main_option("script_location", "server.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "0002")
    usage = {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
    connection.execute(
        text(
            "UPDATE message SET seams = '[3]', usage = :usage, token_ids = :ids, "
            "prompt_token_ids = :ids WHERE id = 'n1'"
        ),
        {"usage": json.dumps(usage), "ids": b"\x01\x00\x00\x00\x02\x00\x00\x00"},
    )


async def _continued(database: Database) -> None:
    async with database.transaction() as session:
        await (await session.connection()).run_sync(_fill_second)
    await database.migrate()
    messages = Messages(database)
    answer = await messages.get("u1", "n1", with_tokens=True)
    assert answer is not None
    assert (answer.text, answer.seams, answer.earlier) == ("Because", [3], [])
    assert (answer.token_ids, answer.thinking, answer.undo_id) == ((1, 2), None, None)
    with pytest.raises(NoSeamError):
        await messages.undo("n1", key="k")
    # What is continued from now on can be undone, as far as that.
    await messages.reopen(answer, options={"max_tokens": 9}, client_id="more")
    whole = Outcome(MessageState.FINISHED, "stop", {"type": "eos"}, "Because of that", (1, 2, 3))
    await messages.finish("n1", whole)
    await messages.undo("n1", key="k")
    undone = await messages.get("u1", "n1", with_tokens=True)
    assert undone is not None
    assert (undone.text, undone.seams, undone.token_ids) == ("Because", [3], (1, 2))
    assert undone.finish_detail == {"type": "max_tokens", "limit": 3}
    with pytest.raises(NoSeamError):
        await messages.undo("n1", key="k2")
    async with database.session() as session:
        conversation = await session.get_one(Conversation, "v1")
        assert (conversation.title, conversation.carried_from) == ("Why?", None)


async def test_continued_answers_of_the_second_version_are_kept_on_sqlite(tmp_path: Any) -> None:
    database = Database(f"sqlite:///{tmp_path}/old.db")
    await _continued(database)
    await database.close()


@pytest.mark.postgres
async def test_continued_answers_of_the_second_version_are_kept_on_postgresql(
    cluster: Cluster,
) -> None:
    skip_without_postgresql()
    async with cluster.fresh_url(is_migrated=False) as url:
        database = Database(url)
        await _continued(database)
        await database.close()
