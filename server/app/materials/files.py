"""`MaterialFiles`: the bytes of materials on disk, under names that no client has chosen.

materials/<course id>/<sha256>   kept bytes; a row of the store names each by its digest
uploads/<random>                 what is still coming in, and archives being unpacked

Only the owner may read them. All methods block: call them in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from server.app.materials.errors import MaterialError
from server.app.materials.upload_errors import StorageFullError

_CHUNK_BYTES = 1024 * 1024
_STALE_S = 3600.0
"""Younger leftovers may be another process's work."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that has come in whole. `name` is what people call it, never a path to follow."""

    path: Path
    name: str
    sha256: str
    size: int


class MaterialFiles:
    """Immutable; safe for several threads and processes."""

    def __init__(self, materials: Path, uploads: Path) -> None:
        """Folders that need not exist yet; both on one file system."""
        self._materials = materials
        self._uploads = uploads

    def path(self, course_id: str, sha256: str) -> Path:
        """Where a material's bytes are kept."""
        return self._materials / course_id / sha256

    def stage(self, source: IO[bytes], name: str, *, max_bytes: int) -> StagedFile:
        """Takes a file in, from where `source` stands. Raises MaterialError (`too_big`) and
        StorageFullError, and leaves nothing behind then."""
        digest = hashlib.sha256()
        size = 0
        path = self._new_path()
        try:
            with _room(), _create(path) as sink:
                while chunk := source.read(_CHUNK_BYTES):
                    size += len(chunk)
                    if size > max_bytes:
                        raise MaterialError("too_big", name=name)
                    digest.update(chunk)
                    sink.write(chunk)
                sink.flush()
                os.fsync(sink.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return StagedFile(path, name, digest.hexdigest(), size)

    def keep(self, staged: StagedFile, course_id: str) -> Path:
        """Moves a staged file to where it stays, for good: it survives a power cut. Raises
        StorageFullError."""
        path = self.path(course_id, staged.sha256)
        with _room():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            staged.path.replace(path)
            _sync_folder(path.parent)
        return path

    def kept_long(self) -> list[tuple[str, str]]:
        """Course and digest of each file that is kept, but for young ones: another process may
        be about to name them."""
        found = []
        for path in self._materials.glob("*/*"):
            with contextlib.suppress(OSError):  # gone meanwhile
                if time.time() - path.stat().st_mtime >= _STALE_S:
                    found.append((path.parent.name, path.name))
        return found

    def drop(self, staged: StagedFile) -> None:
        """Removes a staged file that is not wanted. Idempotent."""
        staged.path.unlink(missing_ok=True)

    def remove(self, course_id: str, sha256: str) -> None:
        """Removes a material's bytes. Idempotent."""
        path = self.path(course_id, sha256)
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other files are in it
            path.parent.rmdir()

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """An empty folder that is gone at the end of the block, with all that is in it."""
        path = self._new_path()
        path.mkdir(mode=0o700)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def remove_stale(self) -> None:
        """Removes what processes that are gone have left in the folder of uploads."""
        if not self._uploads.exists():
            return
        for path in self._uploads.iterdir():
            with contextlib.suppress(OSError):  # somebody else's, and gone meanwhile
                if time.time() - path.stat().st_mtime < _STALE_S:
                    continue
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def _new_path(self) -> Path:
        with _room():
            self._uploads.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._uploads / secrets.token_hex(16)


def _create(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise StorageFullError from error
        raise
