"""What is deleted while somebody is just asking in it: that is what they are told, and nothing of
it stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from server.service.auth import UserId
from server.service.generation import GenerationOptions
from server.service.messages import Continue, Edit, Regenerate
from server.service.runs import Run
from server.store.conversations import Conversations
from server.store.courses import Courses
from server.store.database import Database
from server.store.messages import Messages
from tests.server.app.site import ALICE, Site, events_of, new_key, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

Do = Callable[[], Awaitable[object]]


def before(monkeypatch: pytest.MonkeyPatch, owner: type[object], name: str, do: Do) -> None:
    """The next call of a method happens after `do`."""
    method = getattr(owner, name)

    async def later(self: object, *args: Any, **options: Any) -> Any:
        monkeypatch.setattr(owner, name, method)
        await do()
        return await method(self, *args, **options)

    monkeypatch.setattr(owner, name, later)


async def start(site: Site, way: str, asked: dict[str, Any]) -> Run:
    """One of the ways in which something new begins in a conversation."""
    chat, options = site.app.chat, GenerationOptions()
    match way:
        case "ask":
            message = site.ask(conversation=asked["conversation"])
            return await chat.ask(ALICE, message)
        case "edit":
            return await chat.edit(
                ALICE, Edit(new_key(), asked["user_message"], "And when?", options)
            )
        case "regenerate":
            return await chat.regenerate(ALICE, Regenerate(new_key(), asked["message"], options))
        case _:
            return await chat.continue_(ALICE, Continue(new_key(), asked["message"], options))


PLACES = {
    "answer_to_client_id": "before it is stored",
    "path": "before its history is read",
    "prepare": "before its passages are stored",
}
CASES = [
    *(
        pytest.param(way, name, id=f"{way}, {place}")
        for way in ("ask", "edit", "regenerate")
        for name, place in PLACES.items()
    ),
    pytest.param("continue", "reopen", id="continue"),
]


@pytest.mark.parametrize(("way", "name"), CASES)
async def test_a_conversation(
    way: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_site(tmp_path) as site:
        events = await site.answer(max_tokens=1)
        asked = events["accepted"][0]
        conversations = Conversations(site.app.database)
        before(
            monkeypatch,
            Messages,
            name,
            lambda: conversations.delete(ALICE, asked["conversation"]),
        )
        told = await events_of(await start(site, way, asked))
        (error,) = told["error"]
        assert (error["code"], error["param"]) == ("not_found", "conversation"), error
        assert await num_rows(site.app.database, "message") == 0
        # The next one goes on as ever.
        assert (await site.answer())["finish"]


async def test_an_answer_that_begins_while_its_conversation_is_deleted_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_site(tmp_path, script={"token_s": 0.05, "token_chars": 1}) as site:
        asked = (await site.answer(max_tokens=1))["accepted"][0]
        begun: list[Run] = []

        async def begin() -> None:
            run = await site.app.chat.ask(ALICE, site.ask(conversation=asked["conversation"]))
            begun.append(run)
            async for event in run.events():
                if event.type == "delta":
                    return

        before(monkeypatch, Conversations, "delete", begin)
        async with site.client() as client:
            reply = await client.delete(f"/api/conversations/{asked['conversation']}")
        assert reply.status_code == 204
        told = await events_of(begun[0])
        assert told["finish"][0]["finish_detail"]["type"] == "cancelled"
        assert len(told["text"][0]["text"]) < len("On Tuesday, in room B204 [1].")
        await site.app.record_indexer.index_waiting()
        assert await num_rows(site.app.database, "message") == 0


async def test_a_course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    async with open_site(tmp_path / "site", database_url=database_url) as site:
        teacher = await site.account("teacher", "Wu", "demo")
        student = await site.account("student", "Ann", "demo")
        before(monkeypatch, Messages, "open_question", lambda: remove_course(site, teacher))
        run = await site.app.chat.ask(student, site.ask())
        (error,) = (await events_of(run))["error"]
        assert (error["code"], error["param"]) == ("not_found", "course"), error


async def test_what_comes_into_a_course_while_it_is_deleted_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    async with open_site(tmp_path / "site", database_url=database_url) as site:
        teacher = await site.account("teacher", "Wu", "demo")

        async def come() -> None:
            """A material that is read, and a question that is answered."""
            async with site.client(teacher) as client:
                reply = await client.post(
                    "/api/courses/demo/materials",
                    files={"file": ("late.md", b"# Late\n\nThe late word is mangrove.")},
                )
            assert reply.status_code == 201, reply.text
            async with asyncio.timeout(20):
                while await num_rows(site.app.database, "passage") < 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            run = await site.app.chat.ask(teacher, site.ask(course="demo"))
            assert (await events_of(run))["finish"]

        before(monkeypatch, Courses, "delete", come)
        await remove_course(site, teacher)
        await site.app.library.stop()
        await site.app.record_indexer.index_waiting()
        kind = "fts" if site.app.database.is_sqlite else "words"
        tables = ("course", "material", "passage", "conversation", "message")
        for table in (*tables, f"passage_{kind}", f"record_{kind}"):
            assert await num_rows(site.app.database, table) == 0, table
        kept = [path for path in (tmp_path / "site" / "materials").rglob("*") if path.is_file()]
        assert kept == []


async def remove_course(site: Site, teacher: UserId) -> None:
    async with site.client(teacher) as client:
        await client.patch("/api/courses/demo", json={"is_archived": True})
        gone = await client.request("DELETE", "/api/courses/demo", json={"confirm": "Demo"})
    assert gone.status_code == 204, gone.text


async def num_rows(database: Database, table: str) -> int:
    async with database.session() as session:
        found = await session.execute(text(f"SELECT count(*) FROM {table}"))
        return int(found.scalar_one())
