"""The path to a message: what is read of its conversation, and in which order it comes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, inspect

from server.store.database import Database
from server.store.messages import GoneError, Messages
from server.store.schema import Conversation, Message, User

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


@contextmanager
def loaded_messages() -> Iterator[list[str]]:
    """Ids of the messages that are loaded whole meanwhile."""
    ids: list[str] = []

    def note(row: Message, _context: Any) -> None:
        ids.append(row.id)

    event.listen(Message, "load", note)
    try:
        yield ids
    finally:
        event.remove(Message, "load", note)


async def put_tree(database: Database, length: int, num_branches: int) -> list[str]:
    """A conversation with a branch of two messages off each of the first messages of its trunk,
    whose ids come back in order. No id tells what comes first."""
    trunk = [f"{length - n:05}" for n in range(length)]
    async with database.transaction() as session:
        session.add(User(id="u1"))
        await session.flush()
        session.add(Conversation(id="c1", user_id="u1", title="Long"))
        await session.flush()
        parents = zip(trunk, [None, *trunk], strict=False)
        rows = [Message(id=id, parent_id=parent, text=f"At {id}") for id, parent in parents]
        for id in trunk[:num_branches]:
            rows.append(Message(id=f"{id}a", parent_id=id, text="Off"))
            rows.append(Message(id=f"{id}b", parent_id=f"{id}a", text="Further off"))
        for n, row in enumerate(rows):
            row.conversation_id, row.role = "c1", ("user", "assistant")[n % 2]
            session.add(row)
            await session.flush()
    return trunk


async def test_of_other_branches_nothing_is_loaded(database: Database) -> None:
    trunk = await put_tree(database, length=40, num_branches=30)
    messages = Messages(database)
    for id, expected in (
        (trunk[19], trunk[:20]),
        (f"{trunk[3]}b", [*trunk[:4], f"{trunk[3]}a", f"{trunk[3]}b"]),
        (trunk[0], trunk[:1]),
    ):
        with loaded_messages() as loaded:
            path = await messages.path(id)
        assert [message.id for message in path] == expected
        assert sorted(loaded) == sorted(expected)


async def test_a_path_longer_than_a_statement_holds_is_whole(database: Database) -> None:
    trunk = await put_tree(database, length=1203, num_branches=0)
    path = await Messages(database).path(trunk[-1])
    assert [message.id for message in path] == trunk
    assert [message.text for message in path] == [f"At {id}" for id in trunk]
    unloaded: list[set[str]] = [inspect(message).unloaded for message in path]
    assert all(left == {"prompt_token_ids", "token_ids"} for left in unloaded)


async def test_what_is_not_there_has_no_path(database: Database) -> None:
    with pytest.raises(GoneError):
        await Messages(database).path("nowhere")
