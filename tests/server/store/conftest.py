"""A fresh SQLite database in a file for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server.store.database import Database, sqlite_url


@pytest.fixture
def database_path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "lectern.db"


@pytest.fixture
async def database(database_path: Path, anyio_backend: object) -> AsyncIterator[Database]:
    database = Database(sqlite_url(database_path))
    await database.open()
    yield database
    await database.close()
