"""`MaterialImporter`: files become materials, passages and index rows in the store.

Importing again is cheap and changes nothing while a file's bytes, and the way passages are made,
are the same; a changed file replaces its passages in one transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread
import msgspec
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from server.app.materials.errors import CourseFileError
from server.app.materials.parser import is_supported, parser_for
from server.app.passages import Document, PassageLimits, PassageText, split
from server.store.courses import Courses
from server.store.database import Database
from server.store.ids import new_id
from server.store.schema import Course, Material, PassageRow
from server.store.search import IndexedText, forget_passages, index_passages

COURSE_FILE = "course.json"
PASSAGE_VERSION = 1
"""Raised when passages or index words come out differently: files are then imported anew."""

CountTokens = Callable[[Sequence[str]], Awaitable[list[int]]]
"""The model's token count of each text."""
ImportProgress = Callable[[str, int, int], None]
"""Called after each file: its name, files done, files in all."""


class MaterialNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `course.json` says about files: `file` is a name without language and ending."""

    file: str
    kind: str | None = None
    week: int | None = None


class CourseFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`course.json`: a course and, where wanted, notes on its files."""

    slug: str
    title: str
    title_zh: str | None = None
    language: str = "en"
    suggestions: list[dict[str, str]] = []
    materials: list[MaterialNote] = []

    def note_on(self, name: str) -> MaterialNote:
        """The note on the file called `name`; an empty one where there is none."""
        stem = name.split(".", 1)[0]
        return next((n for n in self.materials if n.file == stem), MaterialNote(stem))


@dataclass(frozen=True, slots=True)
class ImportedFolder:
    """What an import did: names of the files read, and of those that had changed."""

    files: tuple[str, ...]
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _ParsedFile:
    kind: str
    document: Document
    passages: tuple[PassageText, ...]


class MaterialImporter:
    """Owned by the event loop; reading and splitting happen in a thread."""

    def __init__(
        self, database: Database, count_tokens: CountTokens, limits: PassageLimits | None = None
    ) -> None:
        """`limits`: sizes of the passages, where they are not to be the usual ones."""
        self._database = database
        self._count_tokens = count_tokens
        self._limits = limits or PassageLimits()

    async def import_course(
        self, folder: Path, *, on_progress: ImportProgress | None = None
    ) -> Course:
        """The course that `folder` holds, with all its files. Raises MaterialError."""
        course_file = await anyio.to_thread.run_sync(_read_course_file, folder)
        course = await Courses(self._database).put(
            course_file.slug,
            title=course_file.title,
            title_zh=course_file.title_zh,
            language=course_file.language,
            suggestions=course_file.suggestions,
        )
        await self.import_folder(course.id, folder, notes=course_file, on_progress=on_progress)
        return course

    async def import_folder(
        self,
        course_id: str,
        folder: Path,
        *,
        notes: CourseFile | None = None,
        on_progress: ImportProgress | None = None,
    ) -> ImportedFolder:
        """Every file of `folder` that can be read, by name. Raises MaterialError at the first
        broken one; the files before it stay imported."""
        names = await anyio.to_thread.run_sync(_supported_names, folder)
        changed = []
        for done, name in enumerate(names, start=1):
            data = await anyio.to_thread.run_sync((folder / name).read_bytes)
            note = notes.note_on(name) if notes else None
            if await self.import_file(course_id, name, data, note=note):
                changed.append(name)
            if on_progress is not None:
                on_progress(name, done, len(names))
        return ImportedFolder(tuple(names), tuple(changed))

    async def import_file(
        self, course_id: str, name: str, data: bytes, *, note: MaterialNote | None = None
    ) -> bool:
        """Whether the store changed. Raises MaterialError."""
        note = note or MaterialNote(name)
        digest = await anyio.to_thread.run_sync(_digest, data, note, self._limits)
        if await self._is_stored(course_id, name, digest):
            return False
        parsed = await anyio.to_thread.run_sync(_parse, name, data, self._limits)
        counts = await self._count_tokens([passage.text for passage in parsed.passages])
        async with self._database.transaction() as session:
            await _remove(session, course_id, name)
            material = Material(
                id=new_id(),
                course_id=course_id,
                name=name,
                title=parsed.document.title,
                kind=note.kind or "other",
                format=parsed.kind,
                week=note.week,
                made_from=digest,
                text=parsed.document.text,
            )
            session.add(material)
            await session.flush()
            await _add_passages(session, material, parsed.passages, counts)
        return True

    async def _is_stored(self, course_id: str, name: str, digest: str) -> bool:
        async with self._database.session() as session:
            stored = await session.scalars(
                select(Material.made_from).where(
                    Material.course_id == course_id, Material.name == name
                )
            )
            return list(stored) == [digest]


async def _remove(session: AsyncSession, course_id: str, name: str) -> None:
    is_same = (Material.course_id == course_id) & (Material.name == name)
    passage_ids = await session.scalars(
        select(PassageRow.id).join(Material, Material.id == PassageRow.material_id).where(is_same)
    )
    await forget_passages(session, course_id, list(passage_ids))
    await session.execute(delete(Material).where(is_same))


async def _add_passages(
    session: AsyncSession,
    material: Material,
    passages: Sequence[PassageText],
    counts: Sequence[int],
) -> None:
    rows = [
        PassageRow(
            id=new_id(),
            material_id=material.id,
            course_id=material.course_id,
            position=position,
            heading=passage.heading,
            locator=passage.locator or material.title,
            text=passage.text,
            num_tokens=num_tokens,
        )
        for position, (passage, num_tokens) in enumerate(zip(passages, counts, strict=True))
    ]
    session.add_all(rows)
    await session.flush()
    title = f"{material.title} {material.name}"
    await index_passages(
        session,
        material.course_id,
        [
            IndexedText(row.id, title, " ".join(passage.headings[1:]), row.text)
            for row, passage in zip(rows, passages, strict=True)
        ],
    )


def _parse(name: str, data: bytes, limits: PassageLimits) -> _ParsedFile:
    parser = parser_for(name)
    document = parser.parse(name, data)
    return _ParsedFile(parser.kind, document, tuple(split(document, limits=limits)))


def _digest(data: bytes, note: MaterialNote, limits: PassageLimits) -> str:
    """Of everything that a stored material is made from, so that any change is seen."""
    made_from = msgspec.json.encode(
        [PASSAGE_VERSION, limits.least, limits.most, note.kind, note.week]
    )
    return hashlib.sha256(made_from + b"\n" + data).hexdigest()


def _supported_names(folder: Path) -> list[str]:
    return sorted(
        path.name for path in folder.iterdir() if path.is_file() and is_supported(path.name)
    )


def _read_course_file(folder: Path) -> CourseFile:
    path = folder / COURSE_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=CourseFile)
    except OSError as error:
        raise CourseFileError(f"{path} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise CourseFileError(f"{path} is not a course file: {error}.") from error
