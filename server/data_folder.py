"""The data folder belongs to one server at a time: a second one would call the answers of the first
interrupted, and read its materials again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

log = logging.getLogger(__name__)

LOCK_NAME = "lectern.lock"


class DataFolderError(Exception):
    """The data folder cannot be used; the message says why."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Makes the folder and keeps it to this process inside the block. The operating system gives it
    free when the process ends, however it ends. Raises DataFolderError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK_NAME, timeout=0, mode=0o600)
    try:
        lock.acquire()
    except Timeout:
        raise DataFolderError(
            f"another Lectern server uses the data folder {folder}. Stop that one, or choose "
            "another folder with --data-dir."
        ) from None
    except NotImplementedError:
        log.warning("the file system of %s knows no locks; a second server is not noticed", folder)
    try:
        yield
    finally:
        lock.release()
