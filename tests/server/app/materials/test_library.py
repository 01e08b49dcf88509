"""The library from the bytes to the rows: crashes, stops, deletions, full disks."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError

from server.app.materials.document import ParseLimits
from server.app.materials.files import MaterialFiles
from server.app.materials.library import MAX_ATTEMPTS, Library, NewFile
from server.app.materials.parser_process import ParsedMaterial, ParserProcess
from server.app.materials.upload_errors import StorageFullError
from server.service.errors import ShuttingDownError
from server.store.courses import Courses
from server.store.database import Database
from server.store.materials import Materials, Settled
from server.store.schema import Course, Material, MaterialState

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

TEXT = b"# Notes\n\nThe zebra scheduler picks requests.\n"


async def count_by_words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


class SlowParser(ParserProcess):
    """Begins to parse when it is told to."""

    def __init__(self) -> None:
        super().__init__(ParseLimits(), count_by_words)
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

    async def parse(self, path: Path, name: str, **options: object) -> ParsedMaterial:
        self.began.set()
        await self.go_on.wait()
        return await super().parse(path, name, **options)  # type: ignore[arg-type]


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
async def course(database: Database) -> Course:
    return await Courses(database).put("x", title="X")


Open = Callable[..., Library]


@pytest.fixture
async def open_library(database: Database, tmp_path: Path) -> AsyncIterator[Open]:
    """Libraries over the same files: a further one is what a restart finds."""
    opened: list[Library] = []

    def make(parser: ParserProcess | None = None, limits: ParseLimits | None = None) -> Library:
        limits = limits or ParseLimits()
        files = MaterialFiles(tmp_path / "materials", tmp_path / "uploads")
        parser = parser or ParserProcess(limits, count_by_words)
        opened.append(Library(database, files, parser, limits))
        return opened[-1]

    yield make
    for library in opened:
        await library.stop()


def staged(library: Library, data: bytes = TEXT, name: str = "a.md") -> NewFile:
    return NewFile(library.files.stage(io.BytesIO(data), name, max_bytes=1 << 20))


async def only(database: Database) -> Material:
    async with database.session() as session:
        return (await session.scalars(select(Material))).one()


async def ready(database: Database, library: Library, material_id: str) -> Material:
    """The material once nobody reads it any more."""
    reading = library._queue.of_material(material_id)
    if reading is not None:
        await reading.file.over.wait()
    found = await library.materials.get(material_id)
    assert found is not None
    return found


async def test_what_waits_when_the_server_ends_is_read_after_the_next_start(
    database: Database, course: Course, open_library: Open
) -> None:
    stored, is_new = await open_library().store(course.id, staged(open_library()))
    assert is_new
    assert stored.state == MaterialState.WAITING
    library = open_library()
    await library.start()
    found = await ready(database, library, stored.id)
    assert (found.state, found.title) == (MaterialState.READY, "Notes")


async def test_a_crash_while_parsing_is_forgiven_once(
    database: Database, course: Course, open_library: Open
) -> None:
    stored, _ = await open_library().store(course.id, staged(open_library()))
    await Materials(database).begin(stored.id)  # and here the server dies
    library = open_library()
    await library.start()
    assert (await ready(database, library, stored.id)).state == MaterialState.READY

    twice = {"state": MaterialState.PARSING, "attempts": 2}
    await library.materials.edit(stored.id, lambda _: Settled(twice))
    again = open_library()
    await again.start()
    found = await ready(database, again, stored.id)
    assert (found.state, found.error_code) == (MaterialState.FAILED, "parser_crashed")
    assert await again.materials.passages(stored.id) == []


async def test_a_stop_puts_back_what_is_being_read(
    database: Database, course: Course, open_library: Open
) -> None:
    parser = SlowParser()
    library = open_library(parser)
    await library.start()
    file, _ = await library.add(course.id, staged(library))
    await parser.began.wait()
    stopping = asyncio.create_task(library.stop())
    parser.go_on.set()
    await stopping
    assert file.over.is_set()
    assert file.error is None
    found = await only(database)
    assert (found.state, found.attempts) == (MaterialState.WAITING, 0)
    with pytest.raises(ShuttingDownError):
        await library.add(course.id, staged(library, b"other"))

    again = open_library()
    await again.start()
    assert (await ready(database, again, found.id)).state == MaterialState.READY


async def test_a_replacement_that_a_stop_cuts_goes_on_at_the_next_start(
    database: Database, course: Course, open_library: Open, tmp_path: Path
) -> None:
    first = open_library()
    await first.start()
    file, _ = await first.add(course.id, staged(first))
    await file.over.wait()
    before = await only(database)
    await first.stop()
    parser = SlowParser()
    library = open_library(parser)
    await library.start()
    new = library.files.stage(io.BytesIO(b"# Other\n\nwords"), "b.md", max_bytes=100)
    replaced = await library.replace(before, new)
    await parser.began.wait()
    stopping = asyncio.create_task(library.stop())
    parser.go_on.set()
    await stopping
    assert (replaced.state, replaced.error) == ("waiting", None)
    cut = await only(database)
    assert (cut.name, cut.content_sha256) == ("a.md", before.content_sha256)

    again = open_library()
    await again.start()
    after = await ready(database, again, cut.id)
    assert after.renewal is None
    assert (after.name, after.content_sha256) == ("b.md", new.sha256)
    await again.stop()
    kept = [path.name for path in (tmp_path / "materials" / course.id).iterdir()]
    assert kept == [new.sha256]


async def test_an_encoding_that_was_asked_for_is_not_forgotten(
    database: Database, course: Course, open_library: Open
) -> None:
    first = open_library()
    await first.start()
    file, _ = await first.add(course.id, staged(first, "# 第一讲\n\n分页".encode("gb18030")))
    await file.over.wait()
    await first.stop()
    library = open_library(SlowParser())
    # Not started: what is asked for waits until the process ends, as if it were killed.
    before = await only(database)
    await library.decode(before, "big5")
    again = open_library()
    await again.start()
    after = await ready(database, again, before.id)
    assert after.renewal is None
    assert after.encoding == "big5hkscs"
    assert after.edited == ["encoding"]


async def test_a_replacement_that_ends_the_server_each_time_is_given_up(
    database: Database, course: Course, open_library: Open, tmp_path: Path
) -> None:
    first = open_library()
    await first.start()
    file, _ = await first.add(course.id, staged(first))
    await file.over.wait()
    before = await only(database)
    await first.stop()
    new = first.files.stage(io.BytesIO(b"# Other\n\nwords"), "b.md", max_bytes=100)
    library = open_library(SlowParser())
    await library.replace(before, new)
    crashed = []
    for _ in range(MAX_ATTEMPTS):
        parser = SlowParser()
        crashed.append((parser, open_library(parser)))
        await crashed[-1][1].start()
        await parser.began.wait()
    again = open_library()
    await again.start()
    after = await only(database)
    assert (after.renewal, after.content_sha256) == (None, before.content_sha256)
    for parser, gone in crashed:  # they hang where a crash would have ended them
        stopping = asyncio.create_task(gone.stop())
        parser.go_on.set()
        await stopping
    kept = [path.name for path in (tmp_path / "materials" / course.id).iterdir()]
    assert kept == [before.content_sha256]


async def test_what_is_deleted_while_it_waits_is_over(
    course: Course, open_library: Open, database: Database
) -> None:
    """Whoever waited for it waited a minute, and its import never ended."""
    parser = SlowParser()
    library = open_library(parser)
    await library.start()
    first, _ = await library.add(course.id, staged(library))
    await parser.began.wait()
    second, _ = await library.add(course.id, staged(library, b"# Other\n\nText.\n", "b.md"))
    assert second.material_id is not None
    await library.delete(second.material_id)
    async with asyncio.timeout(5):
        await second.over.wait()
    assert second.error is not None
    assert second.error.code == "deleted"
    parser.go_on.set()
    await first.over.wait()
    assert first.state == "ready"
    assert (await only(database)).name == "a.md"


async def test_what_waits_when_the_library_stops_is_told_so(
    course: Course, open_library: Open
) -> None:
    parser = SlowParser()
    library = open_library(parser)
    await library.start()
    await library.add(course.id, staged(library))
    await parser.began.wait()
    waiting, _ = await library.add(course.id, staged(library, b"# Other\n\nText.\n", "b.md"))
    stopping = asyncio.create_task(library.stop())
    parser.go_on.set()
    async with asyncio.timeout(10):
        await waiting.over.wait()
        await stopping
    assert (waiting.state, waiting.error) == ("waiting", None)


async def test_bytes_without_a_row_go_at_the_next_start(
    course: Course, open_library: Open, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = open_library()
    await library.start()
    kept, _ = await library.add(course.id, staged(library))
    await kept.over.wait()
    orphan = staged(library, b"# Orphan\n", "o.md").staged
    library.files.keep(orphan, course.id)
    elsewhere = staged(library, b"# Gone\n", "g.md").staged
    library.files.keep(elsewhere, "gone-course")
    left = [library.files.path(course.id, orphan.sha256)]
    left.append(library.files.path("gone-course", elsewhere.sha256))
    await open_library().start()
    assert all(path.exists() for path in left), "young files may be about to get a row"
    monkeypatch.setattr("server.app.materials.files._STALE_S", 0.0)
    await open_library().start()
    assert not any(path.exists() for path in left)
    own = await only(database)
    assert own.content_sha256 is not None
    assert library.files.path(course.id, own.content_sha256).exists()


async def test_the_same_bytes_are_waited_for_together(
    database: Database, course: Course, open_library: Open
) -> None:
    parser = SlowParser()
    library = open_library(parser)
    await library.start()
    first, is_new = await library.add(course.id, staged(library))
    await parser.began.wait()
    second, is_second_new = await library.add(course.id, staged(library, name="b.md"))
    assert (first is second, is_new, is_second_new) == (True, True, False)
    parser.go_on.set()
    await second.over.wait()
    third, is_third_new = await library.add(course.id, staged(library, name="c.md"))
    assert (third.state, is_third_new) == ("duplicate", False)
    assert (await only(database)).name == "a.md"


async def test_what_is_made_otherwise_today_is_read_anew(
    database: Database, course: Course, open_library: Open
) -> None:
    sections = b"\n\n".join(b"## S%d\n\nsome words of section %d" % (n, n) for n in range(8))
    library = open_library(limits=ParseLimits(least_tokens=1, most_tokens=16))
    await library.start()
    file, _ = await library.add(course.id, staged(library, b"# T\n\n" + sections))
    await file.over.wait()
    material_id = file.material_id or ""
    fine = await library.materials.passages(material_id)
    await library.edit(await only(database), {"title": "Kept"})
    await library.stop()

    larger = open_library()
    await larger.start()
    found = await ready(database, larger, material_id)
    assert len(await larger.materials.passages(material_id)) < len(fine)
    assert (found.title, found.edited) == ("Kept", ["title"])
    unchanged = open_library()
    await unchanged.start()
    assert unchanged._queue.of_material(material_id) is None


async def fill(materials: Materials, course: Course) -> None:
    """Adds rows until not even a small one fits."""
    for size in (3000, 1):
        for n in itertools.count():
            row = Material(
                course_id=course.id,
                name="x",
                title="x",
                text="x" * size,
                content_sha256=f"{size}-{n}",
            )
            try:
                await materials.add(row)
            except OperationalError:
                break


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_full_database_stores_nothing_half(
    database: Database, course: Course, open_library: Open, tmp_path: Path
) -> None:
    library = open_library()
    await library.start()

    async def allow(pages: int) -> None:
        async with database.transaction() as session:
            await session.execute(text(f"PRAGMA max_page_count = {pages}"))

    async with database.transaction() as session:
        used = await session.scalar(text("PRAGMA page_count"))
    await allow(used or 0)
    long = b"# Long\n\n" + b"\n\n".join(b"Paragraph %d of zebras." % n for n in range(400))
    file, _ = await library.add(course.id, staged(library, long))
    await file.over.wait()
    assert file.error is not None
    assert file.error.code == "not_stored"
    await fill(library.materials, course)
    with pytest.raises(StorageFullError):
        await library.add(course.id, staged(library))
    await allow(1 << 30)
    stored = await library.materials.get(file.material_id or "")
    assert stored is not None
    assert stored.state != MaterialState.READY
    assert await library.materials.passages(stored.id) == []
    kept = [path.name for path in (tmp_path / "materials").glob("*/*")]
    assert kept == [stored.content_sha256]
    file, _ = await library.add(course.id, staged(library))
    await file.over.wait()
    assert file.state == "ready"
