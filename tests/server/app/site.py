"""A whole site over a scripted engine and a small course of its own, for tests."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import httpx
from argon2 import PasswordHasher

from engine.api import Engine, Script, create_scripted_engine
from server.app.accounts import fold_login
from server.app.factory import App, create_app
from server.config import ServerConfig
from server.lifespan import lifespan
from server.service.auth import COOKIE_NAME, UserId
from server.service.generation import GenerationOptions
from server.service.messages import Ask, Continue
from server.service.runs import Run
from server.store.column_types import utc_now
from server.store.courses import Courses
from server.store.enrolments import Enrolments
from server.store.users import NewAccount, Users

ALICE, BOB = UserId("alice-0001"), UserId("bob-000001")
PASSWORD = "correct horse"
QUESTION = "When are the office hours of the lab?"
_COURSE = {"slug": "demo", "title": "Demo", "title_zh": "演示", "suggestions": [{"en": QUESTION}]}
_MATERIAL = """# Staff

## Office hours

The office hours of the lab are on Tuesday from 14:00 to 16:00 in room B204.

## Late work

Late lab reports lose ten percent a day, for at most three days.
"""


def write_course(folder: Path) -> Path:
    """A course of one short file."""
    folder.mkdir(parents=True)
    (folder / "course.json").write_text(json.dumps(_COURSE), "utf-8")
    (folder / "staff.en.md").write_text(_MATERIAL, "utf-8")
    return folder


@dataclass
class Site:
    """A started site and what its scripted model was asked. `tokens`: the sessions of accounts."""

    app: App
    prompts: list[str]
    tokens: dict[UserId, str] = field(default_factory=dict)

    async def account(
        self, role: Literal["student", "teacher"], name: str, course: str | None = None
    ) -> UserId:
        """Somebody with an account, logged in, whose login is their name and whose password is
        PASSWORD; with a course (id or slug), in it as the same."""
        account = NewAccount(name, fold_login(name), _kept_password(), role)
        row = await Users(self.app.database).add(account, link=None, at=utc_now())
        user = UserId(row.id)
        self.tokens[user] = await self.app.account_sessions.begin(row)
        if course is not None:
            found = await Courses(self.app.database).get(course)
            assert found is not None, course
            await Enrolments(self.app.database).enrol(found.id, user, role)
        return user

    def session(self, user: UserId) -> str:
        """The value of the user's session cookie."""
        return self.tokens.get(user) or self.app.service.auth.sign(user)

    def ask(self, text: str = QUESTION, *, id: str | None = None, **fields: Any) -> Ask:
        options = GenerationOptions(
            **{name: fields.pop(name) for name in ("max_tokens", "stop") if name in fields}
        )
        return Ask(id=id or new_key(), text=text, options=options, **fields)

    async def answer(self, text: str = QUESTION, **fields: Any) -> dict[str, list[dict[str, Any]]]:
        """Asks as Alice; the events of the whole run by type."""
        return await events_of(await self.app.chat.ask(ALICE, self.ask(text, **fields)))

    async def go_on(self, message: str, **options: Any) -> dict[str, list[dict[str, Any]]]:
        """Continues an answer of Alice's."""
        message_ = Continue(id=new_key(), message=message, options=GenerationOptions(**options))
        return await events_of(await self.app.chat.continue_(ALICE, message_))

    @asynccontextmanager
    async def client(self, user: UserId = ALICE) -> AsyncIterator[httpx.AsyncClient]:
        """An HTTP client with the user's session cookie."""
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app),
            base_url="http://127.0.0.1",
            cookies={COOKIE_NAME: self.session(user)},
        ) as client:
            yield client

    async def conversation(self, conversation: str, user: UserId = ALICE) -> dict[str, Any]:
        """A conversation as the page reads it."""
        async with self.client(user) as client:
            reply = await client.get(f"/api/conversations/{conversation}")
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found

    async def stored(self, message: str) -> dict[str, Any]:
        """One of Alice's messages as the page reads it."""
        row = await self.app.messages.get(ALICE, message)
        assert row is not None
        (found,) = [
            one
            for one in (await self.conversation(row.conversation_id))["messages"]
            if one["id"] == message
        ]
        return dict(found)


@asynccontextmanager
async def open_site(
    data_dir: Path,
    answer: Callable[[str], Any] = lambda prompt: "On Tuesday, in room B204 [1].",
    *,
    max_model_len: int = 8192,
    kv_cache_tokens: int = 65536,
    script: dict[str, Any] | None = None,
    engine: Engine | None = None,
    **options: Any,
) -> AsyncIterator[Site]:
    """A site with its data in `data_dir`; opening it again is a restart. `engine`: in place of a
    scripted one, and of what is said of it."""
    course = data_dir / "course"
    if not course.exists():
        write_course(course)
    prompts: list[str] = []

    def recorded(prompt: str) -> Any:
        prompts.append(prompt)
        return answer(prompt)

    config = ServerConfig(
        data_dir=data_dir,
        max_model_len=max_model_len,
        kv_cache_tokens=kv_cache_tokens,
        **{
            "secret": "a secret for tests",
            "drain_timeout_s": 0.2,
            "not_found_score": 0.0,
            **options,
        },
    )
    if engine is None:
        engine = create_scripted_engine(
            config.engine_config(Path("scripted")), Script(answer=recorded, **(script or {}))
        )
    app = create_app(config, engine, course_folders=[course])
    async with lifespan(app):
        yield Site(app, prompts)


async def events_of(run: Run) -> dict[str, list[dict[str, Any]]]:
    """All events of a run by type, when it has ended; what a reader has read under "text"."""
    found: dict[str, list[dict[str, Any]]] = {}
    text = ""
    async for event in run.events():
        data = json.loads(event.data)
        found.setdefault(event.type, []).append(data)
        if event.type in ("delta", "snapshot"):
            text = (text if event.type == "delta" else "") + data["text"]
    found["text"] = [{"text": text}]
    return found


@cache
def _kept_password() -> str:
    """Hashed once, since that is made to be slow."""
    return PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1).hash(PASSWORD)


def new_key() -> str:
    """An idempotency key that was never used."""
    return secrets.token_hex(8)


def kill(data_dir: Path, to: Path) -> Path:
    """What a process that dies now leaves behind: a copy of the database's committed state."""
    to.mkdir()
    with (
        sqlite3.connect(data_dir / "lectern.db") as source,
        sqlite3.connect(to / "lectern.db") as copy,
    ):
        source.backup(copy)
    source.close()
    copy.close()
    write_course(to / "course")
    return to
