"""`ImportQueue`: files wait their turn to be read, courses one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from server.app.materials.errors import MaterialError
from server.app.materials.files import StagedFile
from server.app.materials.import_jobs import ImportedFile
from server.app.materials.naming import Kind

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Given:
    """What is known of a file apart from its name; it counts before what the name tells, and
    after what a teacher has set."""

    kind: Kind | None = None
    week: int | None = None


NOTHING_GIVEN = Given()


@dataclass(frozen=True, slots=True)
class Renewal:
    """A material is read again, in place of what it is now, once the reading has succeeded.
    `staged`: the new bytes, kept already; None: the ones it has. `is_promised`: somebody was told
    that it will be, and its row says so until then."""

    staged: StagedFile | None = None
    encoding: str | None = None
    sets_encoding: bool = False
    is_promised: bool = False


@dataclass(eq=False, slots=True)
class Reading:
    """A material that is to be read, or read again. `parsing` is its task while it is in the
    parser's hands."""

    material_id: str
    course_id: str
    file: ImportedFile
    given: Given = NOTHING_GIVEN
    renewal: Renewal | None = None
    is_dropped: bool = False
    parsing: asyncio.Task[object] | None = field(default=None)

    def drop(self) -> None:
        """It is not wanted any more."""
        self.is_dropped = True
        if self.parsing is None:
            self.file.fail(MaterialError("deleted", name=self.file.name))
        else:
            self.parsing.cancel()

    def stop(self) -> None:
        """The server stops before it was read: the row says what is to be done at the next
        start."""
        self.file.put_off()


class ImportQueue:
    """Owned by the event loop."""

    def __init__(self, read: Callable[[Reading], Awaitable[None]], num_workers: int) -> None:
        """`read` reads one and tells its file the end."""
        self._read = read
        self._num_workers = num_workers
        self._waiting: dict[str, deque[Reading]] = {}
        self._running: set[Reading] = set()
        self._changed = asyncio.Condition()
        self._workers: list[asyncio.Task[None]] = []
        self._is_stopping = False

    def start(self) -> None:
        """Begins to read what waits."""
        self._workers = [asyncio.create_task(self._work()) for _ in range(self._num_workers)]

    async def stop(self) -> None:
        """Returns when nothing is read any more: what is read now ends first, so end the parser
        before. Idempotent."""
        self._is_stopping = True
        for line in self._waiting.values():
            for reading in line:
                reading.stop()
            line.clear()
        await self._wake()
        if self._workers:
            await asyncio.wait(self._workers)

    async def put(self, reading: Reading) -> None:
        """To the end of its course's line; where nothing is read any more, it is put off."""
        if self._is_stopping:
            reading.stop()
            return
        self._waiting.setdefault(reading.course_id, deque()).append(reading)
        await self._wake()

    def of_material(self, material_id: str) -> Reading | None:
        """What is being done with a material, or will be."""
        return next((r for r in self._all() if r.material_id == material_id), None)

    async def drop(self, is_meant: Callable[[Reading], bool]) -> None:
        """Takes readings out of the line, and out of the parser's hands. Those whose passages are
        already being written end by themselves: the store knows that their material is gone."""
        for line in self._waiting.values():
            for reading in [r for r in line if is_meant(r)]:
                line.remove(reading)
                reading.drop()
        for reading in [r for r in self._running if is_meant(r)]:
            reading.drop()

    def _all(self) -> Iterable[Reading]:
        yield from self._running
        for line in self._waiting.values():
            yield from line

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _work(self) -> None:
        while (reading := await self._next()) is not None:
            self._running.add(reading)
            try:
                await self._read(reading)
            except Exception:
                log.exception("a material could not be read or stored")
                reading.file.fail(MaterialError("not_stored", name=reading.file.name))
            finally:
                self._running.discard(reading)

    async def _next(self) -> Reading | None:
        """The next of the course whose turn it is; None when all is to end."""
        async with self._changed:
            while True:
                if self._is_stopping:
                    return None
                for course_id, line in self._waiting.items():
                    del self._waiting[course_id]
                    if line:
                        reading = line.popleft()
                        if line:
                            self._waiting[course_id] = line
                        return reading
                    break
                else:
                    await self._changed.wait()
