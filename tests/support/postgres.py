"""A PostgreSQL cluster of the test session's own, on a Unix socket in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from server.store.database import Database

_TEMPLATE = "migrated"
_OPTIONS = (
    "-c listen_addresses='' -c unix_socket_directories={socket} -c max_connections=100 "
    # Nothing of it needs to survive.
    "-c fsync=off -c full_page_writes=off -c synchronous_commit=off"
)


@cache
def binaries() -> Path | None:
    """The folder of PostgreSQL's programs: from PATH, else Debian's newest; None without any."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(versions, key=lambda path: int(path.parts[-3]), default=None)
    return None if newest is None else newest.parent


def skip_without_postgresql() -> None:
    """Skips the test where there is no PostgreSQL; in CI nothing may be skipped in silence."""
    if binaries() is not None:
        return
    reason = "needs PostgreSQL: sudo apt-get install postgresql"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Cluster:
    """A running cluster, with one migrated database that others are copied from."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._has_template = False

    def url(self, name: str) -> str:
        """What `--database-url` takes for the database called `name`."""
        return f"postgresql://lectern@/{name}?host={self._socket}"

    @asynccontextmanager
    async def fresh_url(self, *, is_migrated: bool = True) -> AsyncIterator[str]:
        """The URL of a database that is nobody else's; dropped at the end."""
        name = f"test_{uuid4().hex}"
        if is_migrated and not self._has_template:
            await self._execute(f"CREATE DATABASE {_TEMPLATE}")
            database = Database(self.url(_TEMPLATE))
            await database.open()
            await database.close()
            self._has_template = True
        template = f" TEMPLATE {_TEMPLATE}" if is_migrated else ""
        await self._execute(f"CREATE DATABASE {name}{template}")
        try:
            yield self.url(name)
        finally:
            await self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(
            host=str(self._socket), user="lectern", database="postgres"
        )
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A cluster while the block lasts (starts in about a second). Needs `binaries()`."""
    folder = binaries()
    assert folder is not None
    # Under /tmp itself: the path of a Unix socket may have 107 bytes.
    root = Path(tempfile.mkdtemp(prefix="lectern-pg-", dir="/tmp"))
    as_user = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        shutil.chown(root, "postgres", "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]

    def run(program: str, *arguments: str) -> None:
        # Output to a file: the server would inherit a pipe and keep it open.
        with (root.parent / f"{root.name}.log").open("ab") as log:
            command = [*as_user, str(folder / program), *arguments]
            done = subprocess.run(command, cwd="/", stdout=log, stderr=log, timeout=180)
        assert done.returncode == 0, (root.parent / f"{root.name}.log").read_text("utf-8")

    data = str(root / "data")
    try:
        encoding = ("-E", "UTF8", "--locale=C.UTF-8")
        run("initdb", "-D", data, "-A", "trust", "-U", "lectern", "--no-sync", *encoding)
        run("pg_ctl", "-D", data, "-w", "-o", _OPTIONS.format(socket=root), "start")
        try:
            yield Cluster(root)
        finally:
            run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(root)
        (root.parent / f"{root.name}.log").unlink(missing_ok=True)
