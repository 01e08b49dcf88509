"""The data folder belongs to one server at a time: a second one would call the answers of the first
interrupted, and read its materials again."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)

LOCK_NAME = "lectern.lock"
_KNOWS_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})


class DataFolderError(Exception):
    """The data folder cannot be used; the message says why."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Makes the folder and keeps it to this process inside the block. The operating system gives it
    free when the process ends, however it ends. Raises DataFolderError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Not a library's lock: where the file system has none, those leave files that outlive a
        # kill, and the server would not start again.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise DataFolderError(
            f"another Lectern server uses the data folder {folder}. Stop that one, or choose "
            "another folder with --data-dir."
        ) from None
    except OSError as error:
        if error.errno not in _KNOWS_NO_LOCKS:
            os.close(file)
            raise
        log.warning("the file system of %s knows no locks; a second server is not noticed", folder)
    try:
        yield
    finally:
        os.close(file)
