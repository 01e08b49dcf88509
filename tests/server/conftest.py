"""Databases for tests of the store and the application: SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from server.store.database import sqlite_url
from tests.support.postgres import Cluster, running_cluster, skip_without_postgresql


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """PostgreSQL, one for the whole session."""
    skip_without_postgresql()
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
async def postgresql_url(cluster: Cluster, anyio_backend: object) -> AsyncIterator[str]:
    """A migrated PostgreSQL database of the test's own."""
    async with cluster.fresh_url() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
async def database_url(
    request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: object
) -> AsyncIterator[str]:
    """The URL of a database of the test's own: the test runs once on each kind."""
    if request.param == "sqlite":
        yield sqlite_url(tmp_path / "data" / "lectern.db")
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    async with cluster.fresh_url() as url:
        yield url
