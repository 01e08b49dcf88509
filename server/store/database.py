"""`Database`: connections, transactions, and migrations run at start.

On SQLite writers take turns through a pool of one connection that begins with BEGIN IMMEDIATE,
so nothing in this process ever meets "database is locked", and another process is waited for;
readers have their own connections and, in WAL mode, never wait for a writer.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)

_BUSY_TIMEOUT_S = 30.0
"""How long a transaction waits for another process's lock."""
_BUSY_SLICE_S = 0.25
"""How long SQLite itself waits, in its connection's thread, where nothing can interrupt it:
longer waits are made of slices, so that who waits can be cancelled, and a shutdown ends."""
_READER_TIMEOUT_S = 5.0
"""Readers wait for nothing in WAL mode, except for a moment after a crash."""
_NUM_READERS = 4


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file for `Database`."""
    return f"sqlite+aiosqlite:///{path}"


class UnsupportedDatabaseError(Exception):
    """The URL names a database that cannot be used; the message says why."""


class Database:
    """Owned by the event loop. `open` before use; `close` at the end (idempotent)."""

    def __init__(self, url: str) -> None:
        """`url` is SQLAlchemy's, with an async driver; a plain `sqlite:///…` or
        `postgresql://…` gets one. SQLite in memory is not supported: its connections would
        each see a database of their own. Raises UnsupportedDatabaseError, and SQLAlchemyError
        for what is no URL."""
        self._url = make_url(url)
        if self._url.drivername == "sqlite":
            self._url = self._url.set(drivername="sqlite+aiosqlite")
        elif self._url.drivername in ("postgresql", "postgres"):
            self._url = self._url.set(drivername="postgresql+asyncpg")
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        if self.is_sqlite and self._url.database in (None, "", ":memory:"):
            raise UnsupportedDatabaseError(
                "the SQLite database must be a file, as in sqlite:////var/lib/lectern.db"
            )
        try:
            self._writer = self._create_engine(is_writer=True)
        except ModuleNotFoundError as error:
            raise UnsupportedDatabaseError(
                f"the driver {error.name!r} of {self._url.drivername} is not installed"
            ) from error
        if self.is_sqlite:
            self._reader = self._create_engine(is_writer=False)
        else:
            self._reader = self._writer.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        self._write = async_sessionmaker(self._writer, expire_on_commit=False)
        self._read = async_sessionmaker(self._reader, expire_on_commit=False)

    async def open(self) -> None:
        """Makes the folder of a SQLite file and brings the schema up to date."""
        if self.is_sqlite:
            Path(str(self._url.database)).parent.mkdir(parents=True, exist_ok=True)
        await self.migrate()

    async def migrate(self) -> None:
        """Runs the Alembic migrations that the database lacks, in one transaction."""
        async with self.transaction() as session:
            await (await session.connection()).run_sync(_upgrade)

    async def close(self) -> None:
        """Closes all connections."""
        await self._writer.dispose()
        if self.is_sqlite:
            await self._reader.dispose()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """A session that only reads (a write in it is refused): one consistent view."""
        async with self._read() as session:
            yield session

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """A session that writes: committed when the block ends, rolled back if it raises.

        Keep the block short and wait for nothing but the database in it: on SQLite the
        other writers of this process wait for its end."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + _BUSY_TIMEOUT_S
        while True:
            async with self._write() as session:
                try:
                    await session.connection()  # begins: on SQLite, with the write lock
                except (DBAPIError, sqlite3.Error) as error:
                    if _is_locked(error) and loop.time() < give_up_at:
                        continue
                    raise
                yield session
                await session.commit()
                return

    def _create_engine(self, *, is_writer: bool) -> AsyncEngine:
        if not self.is_sqlite:
            return create_async_engine(self._url, pool_pre_ping=True)
        engine = create_async_engine(
            self._url,
            pool_size=1 if is_writer else _NUM_READERS,
            max_overflow=0,
            pool_timeout=2 * _BUSY_TIMEOUT_S,
            connect_args={"timeout": _BUSY_SLICE_S if is_writer else _READER_TIMEOUT_S},
        )
        _prepare_sqlite(engine, is_writer=is_writer)
        return engine


def _is_locked(error: Exception) -> bool:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _prepare_sqlite(engine: AsyncEngine, *, is_writer: bool) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        # The driver's own BEGIN comes late and only before some statements; ours is explicit.
        connection.isolation_level = None
        cursor = connection.cursor()
        if is_writer:
            cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        # What was acknowledged must survive a power cut, so each commit reaches the disk.
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA temp_store=MEMORY")
        if not is_writer:
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def on_begin(connection: Connection) -> None:
        # IMMEDIATE: a transaction that reads first and writes later cannot be refused half-way.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "server.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
