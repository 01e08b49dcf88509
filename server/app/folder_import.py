"""`FolderImport`: every file below a folder into a course, a line for each."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread

from server.app.course_settings import CourseSettings, NewCourse, slug_of
from server.app.materials.course_folder import COURSE_FILE, CourseFolders, FolderFile, files_below
from server.app.materials.errors import MaterialError
from server.app.materials.import_queue import Given
from server.app.materials.library import Library
from server.app.materials.naming import Kind, guess, shown_path
from server.app.materials.parser import is_supported
from server.app.materials.uploads import is_archive
from server.service.auth import UserId
from server.store.courses import Courses
from server.store.schema import Course
from server.store.users import Users


class FolderImport:
    """Used once, by one task. Files are read one after the other."""

    def __init__(
        self,
        library: Library,
        folders: CourseFolders,
        say: Callable[[str], None],
        *,
        week: int | None,
        kind: Kind | None,
        is_hidden: bool,
        max_bytes: int,
    ) -> None:
        """`week` and `kind` are for files whose names tell none."""
        self._library = library
        self._folders = folders
        self._say = say
        self._week = week
        self._kind = kind
        self._is_hidden = is_hidden
        self._max_bytes = max_bytes
        self._outcomes: Counter[str] = Counter()

    async def run(self, course: Course, folder: Path) -> int:
        """Brings them in; returns how many could not be read."""
        for file in await anyio.to_thread.run_sync(files_below, folder):
            if is_archive(file.name):
                await self._archive(course, file)
            elif file.name != COURSE_FILE:
                await self._file(course, file)
        told = ", ".join(f"{n} {outcome}" for outcome, n in self._outcomes.items())
        self._say(f"{course.title}: {told or 'no files'}.")
        return self._outcomes["failed"]

    async def _file(self, course: Course, file: FolderFile) -> None:
        if not is_supported(file.name):
            self._tell("skipped", file.name, "not a kind of file that can be read")
            return
        guessed = guess(file.name)
        given = Given(
            self._kind if guessed.kind == "other" else None,
            self._week if guessed.week is None else None,
        )
        try:
            outcome = await self._folders.import_file(
                course.id, file, given, is_hidden=self._is_hidden
            )
        except MaterialError as error:
            self._tell("failed", file.name, error.message)
        else:
            self._tell(outcome, file.name)

    async def _archive(self, course: Course, archive: FolderFile) -> None:
        async with self._unpacked(archive) as members:
            if isinstance(members, MaterialError):
                self._tell("failed", archive.name, members.message)
                return
            for name, found in members:
                if isinstance(found, MaterialError):
                    outcome = "skipped" if found.code == "unsupported" else "failed"
                    self._tell(outcome, f"{archive.name}/{name}", found.message)
                else:
                    await self._file(course, found)

    @asynccontextmanager
    async def _unpacked(
        self, archive: FolderFile
    ) -> AsyncIterator[list[tuple[str, FolderFile | MaterialError]] | MaterialError]:
        """What is in a zip file, under the names that it has there; for as long as the block."""
        with tempfile.TemporaryDirectory(prefix="lectern-") as folder:
            try:
                members = await self._library.parser.list_archive(
                    archive.path, archive.name, Path(folder)
                )
            except MaterialError as refused:
                yield refused
                return
            found: list[tuple[str, FolderFile | MaterialError]] = []
            for member in members:
                name = shown_path(member.name)
                if member.file is None or not name:
                    error = member.error or MaterialError("not_this_format", name=archive.name)
                    found.append((name, error))
                else:
                    found.append((name, FolderFile(member.file, name, member.size)))
            yield found

    def _tell(self, outcome: str, name: str, why: str = "") -> None:
        self._outcomes[outcome] += 1
        self._say(f"{outcome:<10} {name}{': ' if why else ''}{why}")


async def find_course(
    courses: Courses, users: Users, name: str, *, create: bool, teacher: str | None
) -> Course | str:
    """The course whose id, short name or title is `name`; made, with `create`, where there is
    none: taught by the account `teacher`, or open to every guest without. Else a sentence."""
    found = await courses.get(name)
    if found is None:
        titled = [course for course, _ in await courses.all() if name in _titles(course)]
        if len(titled) > 1:
            names = ", ".join(course.slug for course in titled)
            return f"Several courses are titled {name}; name one of {names}."
        found = titled[0] if titled else None
    if found is not None:
        return found
    if not create:
        return f"There is no course {name}. Add --create to make it."
    if teacher is None:
        return await courses.put(slug_of(name), title=name)
    account = await users.with_login(teacher)
    if account is None or account.role != "teacher":
        return f"There is no teacher's account {teacher}."
    return await CourseSettings(courses).create(UserId(account.id), NewCourse(title=name))


def _titles(course: Course) -> tuple[str | None, str | None]:
    return course.title, course.title_zh
