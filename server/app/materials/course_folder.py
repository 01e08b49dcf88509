"""`CourseFolders`: courses that lie in folders, brought up to date; folders of files as well.

Importing again is cheap: a file whose bytes are known changes nothing, and one with other bytes
takes the place of the material of its name. What a teacher has set by hand stays.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import anyio.to_thread
import msgspec

from server.app.materials.errors import CourseFileError, MaterialError
from server.app.materials.files import StagedFile
from server.app.materials.import_jobs import ImportedFile
from server.app.materials.import_queue import NOTHING_GIVEN, Given, Renewal
from server.app.materials.library import Library, NewFile
from server.app.materials.naming import MAX_WEEK, Kind, shown_path
from server.app.materials.parser import is_supported
from server.app.materials.plain_parser import PlainParser
from server.app.materials.reader import Parses
from server.app.materials.settling import chosen_encoding, made_from
from server.store.courses import Courses
from server.store.schema import Course, Material, MaterialState

log = logging.getLogger(__name__)

COURSE_FILE = "course.json"
_MAX_WEEKS = 60

Outcome = Literal["added", "updated", "unchanged"]
ImportProgress: TypeAlias = Callable[[str, int, int], None]
"""Called after each file: its name, files done, files in all."""


class MaterialNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `course.json` says about files: `file` is a name without language and ending."""

    file: str
    kind: Kind | None = None
    week: int | None = None


class CourseFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`course.json`: a course, its calendar where it has one, and notes on its files."""

    slug: str
    title: str
    title_zh: str | None = None
    language: str = "en"
    suggestions: list[dict[str, str]] = []
    starts_on: date | None = None
    num_weeks: int | None = None
    timezone: str | None = None
    materials: list[MaterialNote] = []

    def __post_init__(self) -> None:
        if self.num_weeks is not None and not 1 <= self.num_weeks <= _MAX_WEEKS:
            raise ValueError(f"num_weeks must be from 1 to {_MAX_WEEKS}")
        for note in self.materials:
            if note.week is not None and not 1 <= note.week <= MAX_WEEK:
                raise ValueError(f"week must be from 1 to {MAX_WEEK}")
        if self.timezone is not None:
            try:
                ZoneInfo(self.timezone)
            except (ZoneInfoNotFoundError, ValueError):
                raise ValueError(f"timezone {self.timezone!r} is not known") from None

    def given_for(self, name: str) -> Given:
        """What is noted of the file called `name`."""
        stem = name.split(".", 1)[0]
        note = next((note for note in self.materials if note.file == stem), None)
        return Given(note.kind, note.week) if note else Given()


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file below a folder. `name` is its path in there."""

    path: Path
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class ImportedFolder:
    """What an import did: names of the files read, of those that had changed, and of those that
    could not be read with the reason."""

    files: tuple[str, ...]
    changed: tuple[str, ...]
    failed: tuple[tuple[str, MaterialError], ...] = ()


class CourseFolders:
    """Owned by the event loop; keeps no state of its own. The library need not be started."""

    def __init__(
        self, library: Library, courses: Courses, plain: PlainParser, *, max_bytes: int
    ) -> None:
        """`plain` reads the small texts of course folders; `max_bytes`: the largest file."""
        self._library = library
        self._courses = courses
        self._plain = plain
        self._max_bytes = max_bytes

    async def import_course(
        self, folder: Path, *, on_progress: ImportProgress | None = None
    ) -> Course:
        """The course that `folder` holds, with all its files that can be read; the others are
        named in the log. Raises CourseFileError."""
        course_file = await anyio.to_thread.run_sync(_read_course_file, folder)
        course = await self._courses.put(
            course_file.slug,
            title=course_file.title,
            title_zh=course_file.title_zh,
            language=course_file.language,
            suggestions=course_file.suggestions,
            starts_on=course_file.starts_on,
            num_weeks=course_file.num_weeks,
            timezone=course_file.timezone,
        )
        result = await self.import_folder(
            course.id, folder, notes=course_file, on_progress=on_progress
        )
        for _, error in result.failed:
            log.warning("a file of the course folder %s was left out: %s", folder.name, error)
        return course

    async def import_folder(
        self,
        course_id: str,
        folder: Path,
        *,
        notes: CourseFile | None = None,
        on_progress: ImportProgress | None = None,
    ) -> ImportedFolder:
        """Every supported file in `folder` itself, by name."""
        found = await anyio.to_thread.run_sync(_supported_files, folder)
        changed, failed = [], []
        for done, file in enumerate(found, start=1):
            given = notes.given_for(file.name) if notes else Given()
            parser = self._plain if PlainParser.takes(file.name, file.size) else None
            try:
                if await self.import_file(course_id, file, given, parser=parser) != "unchanged":
                    changed.append(file.name)
            except MaterialError as error:
                failed.append((file.name, error))
            if on_progress is not None:
                on_progress(file.name, done, len(found))
        return ImportedFolder(tuple(f.name for f in found), tuple(changed), tuple(failed))

    async def import_file(
        self,
        course_id: str,
        file: FolderFile,
        given: Given = NOTHING_GIVEN,
        *,
        parser: Parses | None = None,
        is_hidden: bool = False,
    ) -> Outcome:
        """What became of a file. `parser` reads it, else a process of its own. Raises
        MaterialError, StorageFullError."""
        materials = self._library.materials
        sha256 = await anyio.to_thread.run_sync(_digest, file.path)
        material = await materials.with_content(course_id, sha256)
        if material is None:
            material = await materials.named(course_id, file.name)
        if material is not None and self._is_current(material, sha256):
            return "updated" if await self._settle_notes(material, given) else "unchanged"
        staged = await anyio.to_thread.run_sync(self._stage, file)
        if material is None:
            new = NewFile(staged, given.kind, given.week, is_hidden=is_hidden, is_by_hand=False)
            material, _ = await self._library.store(course_id, new)
            await self._read(material, parser, given, None)
            return "added"
        await self._library.keep_for(material, staged)
        await self._read(material, parser, given, Renewal(staged))
        return "updated"

    async def _read(
        self, material: Material, parser: Parses | None, given: Given, renewal: Renewal | None
    ) -> None:
        read: ImportedFile = await self._library.read_now(
            material, parser or self._library.parser, given, renewal
        )
        if read.error is not None:
            raise read.error

    def _is_current(self, material: Material, sha256: str) -> bool:
        return (
            material.state == MaterialState.READY
            and material.content_sha256 == sha256
            and material.made_from == made_from(self._library.limits, chosen_encoding(material))
        )

    async def _settle_notes(self, material: Material, given: Given) -> bool:
        """Whether what is noted of an unchanged file says something new of it."""
        fields = {
            name: value
            for name, value in (("kind", given.kind), ("week", given.week))
            if value is not None
            and name not in material.edited
            and value != getattr(material, name)
        }
        if fields:
            await self._library.note(material, fields)
        return bool(fields)

    def _stage(self, file: FolderFile) -> StagedFile:
        with closing(file.path.open("rb")) as source:
            return self._library.files.stage(source, file.name, max_bytes=self._max_bytes)


def files_below(folder: Path) -> list[FolderFile]:
    """Every file below `folder`, by path, but for hidden ones and what systems leave behind."""
    return [
        FolderFile(path, shown_path(path.relative_to(folder).as_posix()), path.stat().st_size)
        for path in sorted(_walk(folder))
    ]


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name.startswith((".", "~$")) or path.name == "__MACOSX":
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        elif path.is_file():
            yield path


def _supported_files(folder: Path) -> Sequence[FolderFile]:
    return [
        FolderFile(path, path.name, path.stat().st_size)
        for path in sorted(folder.iterdir())
        if path.is_file() and is_supported(path.name)
    ]


def _digest(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _read_course_file(folder: Path) -> CourseFile:
    path = folder / COURSE_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=CourseFile)
    except OSError as error:
        raise CourseFileError(f"{path} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise CourseFileError(f"{path} is not a course file: {error}.") from error
