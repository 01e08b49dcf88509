"""`ImportJobs`: what became of the files of an upload, for whoever watches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from server.app.materials.errors import MaterialError
from server.service.ids import new_hex

FileState = Literal["waiting", "parsing", "ready", "failed", "duplicate"]

_KEPT_S = 3600.0
_MAX_KEPT = 1000


@dataclass(slots=True)
class ImportedFile:
    """A file that is to become a material. Changed by the loop only. While it is read, `page` of
    `pages` says how far; `over` is set when nothing more happens with it."""

    name: str
    state: FileState = "waiting"
    material_id: str | None = None
    page: int | None = None
    pages: int | None = None
    error: MaterialError | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def progress(self, page: int, pages: int) -> None:
        """It is read, so far."""
        self.page, self.pages = page, pages

    def end(self, state: Literal["ready", "duplicate"]) -> None:
        """It is a material."""
        self.state = state
        self.over.set()

    def put_off(self) -> None:
        """The server stops: it is stored, and read when the server starts again."""
        self.state = "waiting"
        self.over.set()

    def fail(self, error: MaterialError) -> None:
        """It did not become a material, for this reason."""
        self.state, self.error = "failed", error
        self.over.set()


@dataclass(frozen=True, slots=True)
class ImportJob:
    """The files of one upload, in their order."""

    id: str
    course_id: str
    files: Sequence[ImportedFile]

    @property
    def num_over(self) -> int:
        """Files with which nothing more happens."""
        return sum(file.over.is_set() for file in self.files)

    @property
    def is_over(self) -> bool:
        return self.num_over == len(self.files)


@dataclass(slots=True)
class _Kept:
    job: ImportJob
    over_since: float | None = None


class ImportJobs:
    """Owned by the event loop. Jobs are kept for an hour after their end; the rows of materials
    tell the rest."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}

    def open(self, course_id: str, files: Sequence[ImportedFile]) -> ImportJob:
        """A job that can be found by its id from now on."""
        self._forget_old()
        job = ImportJob(new_hex(12), course_id, files)
        self._kept[job.id] = _Kept(job)
        return job

    def get(self, job_id: str) -> ImportJob | None:
        """The job with this id, while it is kept."""
        self._forget_old()
        kept = self._kept.get(job_id)
        return None if kept is None else kept.job

    def _forget_old(self) -> None:
        now = self._clock()
        for kept in tuple(self._kept.values()):
            if not kept.job.is_over:
                continue
            if kept.over_since is None:
                kept.over_since = now
            if now - kept.over_since > _KEPT_S or len(self._kept) > _MAX_KEPT:
                del self._kept[kept.job.id]
