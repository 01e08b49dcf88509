"""A fresh database for each test, once on SQLite and once on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server.store.database import Database, sqlite_url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "lectern.db"


@pytest.fixture
async def sqlite_database(sqlite_path: Path, anyio_backend: object) -> AsyncIterator[Database]:
    """A SQLite database, for what only SQLite has."""
    database = Database(sqlite_url(sqlite_path))
    await database.open()
    yield database
    await database.close()
