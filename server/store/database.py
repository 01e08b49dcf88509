"""`Database`: connections, transactions, and migrations run at start.

On SQLite writers take turns through a pool of one connection that begins with BEGIN IMMEDIATE,
so nothing in this process ever meets "database is locked", and another process is waited for
(`busy_timeout`); readers have their own connections and, in WAL mode, never wait for a writer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)

_BUSY_TIMEOUT_S = 30
_NUM_READERS = 4


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file for `Database`."""
    return f"sqlite+aiosqlite:///{path}"


class Database:
    """Owned by the event loop. `open` before use; `close` at the end (idempotent)."""

    def __init__(self, url: str) -> None:
        """`url` is SQLAlchemy's, with an async driver; a plain `sqlite:///…` or
        `postgresql://…` gets one. SQLite in memory is not supported: its connections would
        each see a database of their own."""
        self._url = make_url(url)
        if self._url.drivername == "sqlite":
            self._url = self._url.set(drivername="sqlite+aiosqlite")
        elif self._url.drivername in ("postgresql", "postgres"):
            self._url = self._url.set(drivername="postgresql+asyncpg")
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        if self.is_sqlite and self._url.database in (None, "", ":memory:"):
            raise ValueError("the SQLite database must be a file")
        self._writer = self._create_engine(is_writer=True)
        self._reader = self._create_engine(is_writer=False) if self.is_sqlite else self._writer
        self._write = async_sessionmaker(self._writer, expire_on_commit=False)
        self._read = async_sessionmaker(self._reader, expire_on_commit=False)

    async def open(self) -> None:
        """Makes the folder of a SQLite file and brings the schema up to date."""
        if self.is_sqlite:
            Path(str(self._url.database)).parent.mkdir(parents=True, exist_ok=True)
        await self.migrate()

    async def migrate(self) -> None:
        """Runs the Alembic migrations that the database lacks, in one transaction."""
        async with self._writer.begin() as connection:
            await connection.run_sync(_upgrade)

    async def close(self) -> None:
        """Closes all connections."""
        await self._writer.dispose()
        if self._reader is not self._writer:
            await self._reader.dispose()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """A session that only reads (SQLite refuses a write in it): one consistent view."""
        async with self._read() as session:
            yield session

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """A session that writes: committed when the block ends, rolled back if it raises.

        Keep the block short and wait for nothing but the database in it: on SQLite the
        other writers of this process wait for its end."""
        async with self._write.begin() as session:
            yield session

    def _create_engine(self, *, is_writer: bool) -> AsyncEngine:
        if not self.is_sqlite:
            return create_async_engine(self._url, pool_pre_ping=True)
        engine = create_async_engine(
            self._url,
            pool_size=1 if is_writer else _NUM_READERS,
            max_overflow=0,
            pool_timeout=2 * _BUSY_TIMEOUT_S,
            connect_args={"timeout": _BUSY_TIMEOUT_S},
        )
        _prepare_sqlite(engine, is_writer=is_writer)
        return engine


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
