"""PER-03 of tests/cases: many writers at once, on both databases."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from server.service.auth import UserId
from tests.server.app.site import Site, events_of, open_site
from tests.support.cases import case

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

NUM_CONVERSATIONS, NUM_QUESTIONS, NUM_UPLOADS = 20, 5, 5
LOCK_S = 2.0
_HOLD_LOCK = """
import sqlite3, sys, time
lock = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
lock.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
lock.execute("ROLLBACK")
lock.close()
"""


class LagWatch:
    """The longest pauses of the loop: by the clock, which other processes stretch as well, and by
    the processor time of its thread."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        self.worst_cpu_s = 0.0
        self._is_on = False
        self._last = (0.0, 0.0)

    def __enter__(self) -> LagWatch:
        self._is_on = True
        # As the server does after its start: what the whole suite has left is not looked through.
        gc.collect()
        gc.freeze()
        self._last = (time.monotonic(), time.thread_time())
        asyncio.get_running_loop().call_soon(self._tick)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_on = False
        gc.unfreeze()

    def _tick(self) -> None:
        now = (time.monotonic(), time.thread_time())
        self.worst_s = max(self.worst_s, now[0] - self._last[0])
        self.worst_cpu_s = max(self.worst_cpu_s, now[1] - self._last[1])
        self._last = now
        if self._is_on:
            asyncio.get_running_loop().call_later(0.001, self._tick)


async def hold_lock(url: str) -> None:
    """Another process, or another client, keeps everybody from writing for a while."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _HOLD_LOCK, parsed.database or "", str(LOCK_S)
        )
        assert await process.wait() == 0
        return
    connection = await asyncpg.connect(
        host=str(parsed.query["host"]), user=parsed.username, database=parsed.database
    )
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE message, conversation IN EXCLUSIVE MODE")
            await connection.execute(f"SELECT pg_sleep({LOCK_S})")
    finally:
        await connection.close()


async def converse(site: Site, user: UserId) -> str:
    conversation = None
    for _ in range(NUM_QUESTIONS):
        run = await site.app.chat.ask(user, site.ask(conversation=conversation))
        events = await events_of(run)
        assert "error" not in events, events["error"]
        conversation = events["accepted"][0]["conversation"]
    assert conversation is not None
    return str(conversation)


async def upload(site: Site, teacher: UserId, n: int) -> int:
    text = f"# Handout {n}\n\n" + f"Handout {n} says what to bring to exercise {n}. " * 50
    async with site.client(teacher) as client:
        files = {"file": (f"handout-{n}.md", text.encode(), "text/markdown")}
        reply = await client.post("/api/courses/demo/materials", files=files, timeout=60)
    return reply.status_code


async def test_many_writers_lose_nothing(tmp_path: Path, database_url: str) -> None:
    """PER-03, with its load, on both databases."""
    expected = case("PER-03")["expect"]
    async with open_site(
        tmp_path, database_url=database_url, script={"token_s": 0.002}, default_max_tokens=32
    ) as site:
        teacher = await site.account("teacher", "lin", "demo")
        lag = LagWatch()
        users = [UserId(f"guest-{n:08}") for n in range(NUM_CONVERSATIONS)]
        with lag:
            conversations, statuses, _ = await asyncio.gather(
                asyncio.gather(*(converse(site, user) for user in users)),
                asyncio.gather(*(upload(site, teacher, n) for n in range(NUM_UPLOADS))),
                hold_lock(database_url),
            )
        assert statuses == [201] * NUM_UPLOADS
        total = 0
        for user, conversation in zip(users, conversations, strict=True):
            messages = (await site.conversation(conversation, user))["messages"]
            assert [message["role"] for message in messages] == ["user", "assistant"] * 5
            parents = [message["parent"] for message in messages]
            assert parents == [None, *(message["id"] for message in messages[:-1])]
            assert {message["state"] for message in messages} == {"finished"}
            total += len(messages)
        assert total == expected["messages"]
        # More than three times what it takes on a quiet machine.
        assert lag.worst_cpu_s < 0.5, "something computes on the loop"
        assert lag.worst_s < 0.75 * LOCK_S, "the loop waited for the lock"
