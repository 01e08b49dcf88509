"""A full disk and a locked database: an error is told, nothing acknowledged is lost, and the end
of an answer is stored as soon as the database takes it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from server.service.runs import Run
from tests.server.app.site import ALICE, Site, events_of, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

PAGES = [b"word " * 1000] * 400
"""Tokens that take more than a page of the database each."""
SLOW = {"token_s": 0.01}


@asynccontextmanager
async def full(site: Site, url: str) -> AsyncIterator[None]:
    """While the block lasts nothing more fits into the database. (PostgreSQL: nothing may be
    written, which its clients meet as they meet a full disk, by an error of the statement.)"""
    database = site.app.database
    if database.is_sqlite:
        async with database.transaction() as session:
            pages = await session.scalar(text("PRAGMA page_count"))
            # The writer's one connection keeps it.
            await session.execute(text(f"PRAGMA max_page_count = {pages}"))
        try:
            yield
        finally:
            async with database.transaction() as session:
                await session.execute(text("PRAGMA max_page_count = 1073741823"))
        return
    parsed = make_url(url)
    connection = await asyncpg.connect(
        host=str(parsed.query["host"]), user=parsed.username, database=parsed.database
    )
    try:
        await connection.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = 'disk_full'; END $$"
        )
        for table in ("message", "conversation"):
            await connection.execute(
                f"CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON {table} "
                "FOR EACH ROW EXECUTE FUNCTION refuse()"
            )
        yield
        for table in ("message", "conversation"):
            await connection.execute(f"DROP TRIGGER full_disk ON {table}")
    finally:
        await connection.close()


async def begun(run: Run, num_deltas: int = 1) -> None:
    """Returns when the run has told so many deltas from now on."""
    async for event in run.events(run.last_seq):
        num_deltas -= event.type == "delta"
        if num_deltas == 0:
            return


async def test_a_disk_that_fills_up_loses_no_acknowledged_answer(
    tmp_path: Path, database_url: str
) -> None:
    async with open_site(
        tmp_path, lambda _: PAGES, script=SLOW, database_url=database_url, default_max_tokens=4096
    ) as site:
        run = await site.app.chat.ask(ALICE, site.ask())
        await begun(run)
        async with full(site, database_url):
            await begun(run, 20)
            run.cancel()
            events = await events_of(run)
            assert events["error"][0]["code"] == "internal"
            accepted, told = events["accepted"][0], events["text"][0]["text"]
            refused = await events_of(
                await site.app.chat.ask(ALICE, site.ask("x" * 60_000, id="later"))
            )
            assert refused["error"][0]["retryable"]
            assert "accepted" not in refused, "what is not stored is not acknowledged"
            # What was stored can be read all the while.
            stored = await site.stored(accepted["user_message"])
            assert stored["text"]
        await site.app.drafts.store_ends()
        answer = await site.stored(accepted["message"])
        assert (answer["state"], answer["text"]) == ("stopped", told)
        assert answer["usage"]["completion_tokens"] > 0
        again = await site.app.chat.ask(ALICE, site.ask(id="later"))
        await begun(again)
        again.cancel()
        assert (await events_of(again))["accepted"]


async def test_a_lock_of_another_process_is_waited_for(tmp_path: Path) -> None:
    async with open_site(tmp_path, script=SLOW) as site:
        lock = sqlite3.connect(
            tmp_path / "lectern.db", isolation_level=None, check_same_thread=False
        )
        await asyncio.to_thread(lock.execute, "BEGIN IMMEDIATE")
        run = await site.app.chat.ask(ALICE, site.ask())
        other = await site.app.chat.ask(ALICE, site.ask())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await begun(run)
        assert run.last_seq == 0, "nothing is acknowledged before it is stored"
        await asyncio.to_thread(lock.execute, "ROLLBACK")
        lock.close()
        for one in (run, other):
            events = await events_of(one)
            assert "error" not in events
            assert (await site.stored(events["accepted"][0]["message"]))["state"] == "finished"
