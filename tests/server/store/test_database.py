"""Migrations, pragmas, and writers that never meet "database is locked"."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, delete, func, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from server.store import database as database_module
from server.store.database import Database, UnsupportedDatabaseError
from server.store.migrations.names import SEARCH_TABLES
from server.store.schema import Course, Material, Table, User

pytestmark = pytest.mark.anyio


def _differences(connection: Connection) -> list[object]:
    def is_ours(_object: object, name: str | None, kind: str, *_rest: object) -> bool:
        if kind == "foreign_key_constraint" and name in inline:
            return False
        return not (name or "").startswith(SEARCH_TABLES)

    # SQLAlchemy does not read ON DELETE of a constraint that stands beside its column, and SQLite
    # can add no other: tested by what it does.
    is_sqlite = connection.dialect.name == "sqlite"
    inline = {None, "fk_material_uploaded_by_user"} if is_sqlite else set()
    context = MigrationContext.configure(connection, opts={"include_object": is_ours})
    return list(compare_metadata(context, Table.metadata))


async def test_migrations_make_exactly_the_schema(database: Database) -> None:
    async with database.transaction() as session:
        connection = await session.connection()
        assert await connection.run_sync(_differences) == []


async def test_a_material_outlives_who_uploaded_it(database: Database) -> None:
    async with database.transaction() as session:
        session.add_all([User(id="u1"), Course(id="c1", slug="c", title="C")])
        await session.flush()
        session.add(Material(id="m1", course_id="c1", name="a", title="a", uploaded_by="u1"))
        await session.flush()
        await session.execute(delete(User))
    async with database.session() as session:
        assert (await session.get_one(Material, "m1")).uploaded_by is None


async def test_opening_again_keeps_what_is_there(database: Database, database_url: str) -> None:
    async with database.transaction() as session:
        session.add(User(id="u1"))
    again = Database(database_url)
    await again.open()
    async with again.session() as session:
        assert await session.scalar(select(User.id)) == "u1"
    await again.close()


async def test_sqlite_is_durable_and_readers_do_not_wait(sqlite_database: Database) -> None:
    async with sqlite_database.session() as session:
        pragmas = {
            name: await session.scalar(text(f"PRAGMA {name}"))
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 5_000,
    }


async def test_a_reading_session_refuses_to_write(database: Database) -> None:
    with pytest.raises(DBAPIError, match=r"read-?only"):
        async with database.session() as session:
            await session.execute(delete(User))


async def test_a_transaction_that_raises_leaves_nothing(database: Database) -> None:
    async def fail() -> None:
        async with database.transaction() as session:
            session.add(User(id="u1"))
            await session.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with database.session() as session:
        assert await session.scalar(select(func.count()).select_from(User)) == 0


async def test_a_cancelled_writer_lets_the_next_one_in(database: Database) -> None:
    """The only writing connection must come back whole, whoever gave it up."""
    is_inside = asyncio.Event()

    async def write() -> None:
        async with database.transaction() as session:
            session.add(User(id="lost"))
            await session.flush()
            is_inside.set()
            await asyncio.Event().wait()

    writer = asyncio.create_task(write())
    await is_inside.wait()
    writer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writer
    async with asyncio.timeout(5):
        async with database.transaction() as session:
            session.add(User(id="kept"))
    async with database.session() as session:
        assert (await session.scalars(select(User.id))).all() == ["kept"]


async def test_foreign_keys_hold(database: Database) -> None:
    with pytest.raises(IntegrityError):
        async with database.transaction() as session:
            session.add(Material(course_id="nowhere", name="a", title="a", text=""))


async def test_nul_and_lone_surrogates_do_not_reach_the_database(database: Database) -> None:
    async with database.transaction() as session:
        session.add(Course(slug="c", title="保持\x00公平 \ud800!"))
    async with database.session() as session:
        title = await session.scalar(select(Course.title))
    assert title is not None
    assert title.startswith("保持公平 ")
    assert title.endswith("!")
    assert "\ud800" not in title


async def test_times_come_back_with_their_zone(database: Database) -> None:
    async with database.transaction() as session:
        user = User(id="u1")
        session.add(user)
    async with database.session() as session:
        stored = await session.get_one(User, "u1")
    assert stored.created_at == user.created_at
    assert stored.created_at.utcoffset() is not None


async def test_parallel_writers_all_get_through(sqlite_database: Database) -> None:
    async def write(n: int) -> None:
        async with sqlite_database.transaction() as session:
            count = await session.scalar(select(func.count()).select_from(User))
            session.add(User(id=f"u{n}", role=f"saw {count}"))

    await asyncio.gather(*(write(n) for n in range(100)))
    async with sqlite_database.session() as session:
        roles = (await session.scalars(select(User.role))).all()
    assert sorted(roles) == sorted(f"saw {n}" for n in range(100))


async def test_another_process_with_the_write_lock_is_waited_for(
    sqlite_database: Database, sqlite_path: Path
) -> None:
    """The loop keeps running meanwhile, and so do readers."""
    other = sqlite3.connect(sqlite_path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")

    async def write() -> None:
        async with sqlite_database.transaction() as session:
            session.add(User(id="u1"))

    started = time.monotonic()
    writer = asyncio.create_task(write())
    async with sqlite_database.session() as session:
        assert await session.scalar(select(func.count()).select_from(User)) == 0
    num_turns = 0
    while time.monotonic() - started < 0.5:
        await asyncio.sleep(0.01)
        num_turns += 1
    assert not writer.done()
    other.execute("COMMIT")
    other.close()
    await writer
    # A loop that waits for SQLite has four at most: it is given a quarter of a second at a time.
    assert num_turns >= 10


async def test_memory_databases_are_refused() -> None:
    with pytest.raises(UnsupportedDatabaseError, match="file"):
        Database("sqlite://")


async def test_a_missing_driver_is_named() -> None:
    with pytest.raises(UnsupportedDatabaseError, match="mysql"):
        Database("mysql://localhost/lectern")


async def test_a_writer_that_waits_for_another_process_can_be_cancelled(
    sqlite_database: Database, sqlite_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited 30 s in SQLite, whoever wanted to stop it; and gives up by itself in time."""
    other = sqlite3.connect(sqlite_path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def write() -> None:
        async with sqlite_database.transaction() as session:
            session.add(User(id="u1"))

    is_refused = asyncio.Event()
    is_locked = database_module._is_locked

    def observed(error: Exception) -> bool:
        is_refused.set()
        return is_locked(error)

    monkeypatch.setattr(database_module, "_is_locked", observed)
    writer = asyncio.create_task(write())
    await is_refused.wait()  # its first try has ended; it waits in the second
    writer.cancel()
    started = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await writer
    assert time.monotonic() - started < 2
    monkeypatch.setattr("server.store.database._BUSY_TIMEOUT_S", 0.3)
    with pytest.raises(OperationalError, match="locked"):
        await write()
    other.execute("ROLLBACK")
    other.close()
    await write()
