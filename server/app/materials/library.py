"""`Library`: what a course holds, from the bytes that come in to passages that can be found.

A file is stored, and its row committed as `waiting`, before anybody is told that it has come in.
A queue reads the rows that wait, in processes of their own; what a crash cuts goes on at the next
start. The same bytes are one material of a course. Reading a material again, for other bytes or
another encoding, changes nothing until it has succeeded.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

import anyio.to_thread
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from server.app.materials.document import ParseLimits
from server.app.materials.errors import MaterialError
from server.app.materials.files import MaterialFiles, StagedFile
from server.app.materials.import_jobs import ImportedFile
from server.app.materials.import_queue import (
    NOTHING_GIVEN,
    Given,
    ImportQueue,
    Reading,
    Renewal,
)
from server.app.materials.kept_bytes import KeptBytes
from server.app.materials.naming import KINDS, Kind, guess
from server.app.materials.parser import SUPPORTED, format_of
from server.app.materials.parser_process import ParserProcess
from server.app.materials.reader import MaterialReader, Parses
from server.app.materials.settling import (
    chosen_encoding,
    edited_title_words,
    made_from,
    renewal_row,
    stored_renewal,
)
from server.app.materials.upload_errors import StorageFullError
from server.service.errors import ConflictError, NotFoundError, ShuttingDownError
from server.store.database import Database
from server.store.materials import Materials, Settled
from server.store.schema import Material, MaterialState

log = logging.getLogger(__name__)

_PG_DISK_FULL = "53100"
MAX_ATTEMPTS = 2
"""How often a material may be read when the server ends meanwhile: it may be the reason."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file for a course, with what its uploader says about it."""

    staged: StagedFile
    kind: Kind | None = None
    week: int | None = None
    is_hidden: bool = False
    visible_from: datetime | None = None
    uploaded_by: str | None = None
    is_by_hand: bool = True
    """Whether `kind` and `week` were set by a person, and stay when the file is imported anew."""


class Library:
    """Owned by the event loop. `start` when the store is open and the model can count tokens;
    `stop` before either is closed."""

    def __init__(
        self,
        database: Database,
        files: MaterialFiles,
        parser: ParserProcess,
        limits: ParseLimits,
        *,
        num_workers: int = 1,
    ) -> None:
        self.materials = Materials(database)
        self.files = files
        self.parser = parser
        self.limits = limits
        self._bytes = KeptBytes(files, self.materials)
        self._reader = MaterialReader(self.materials, files, self._bytes, limits)
        self._queue = ImportQueue(self._read_queued, num_workers)
        self._is_stopping = False

    async def start(self) -> None:
        """Goes on with what the last end has cut, and reads anew, one after the other, what was
        read in another way than today's."""
        await anyio.to_thread.run_sync(self.files.remove_stale)
        await self._bytes.remove_orphans()
        waiting, given_up = await self.materials.unfinished(MAX_ATTEMPTS)
        for material in given_up:
            await self.materials.fail(material.id, "parser_crashed", {"name": material.name})
        for material in waiting:
            await self._put(material)
        for material in await self.materials.to_renew():
            await self._renew_again(material)
        for material in await self.materials.ready():
            if self._queue.of_material(material.id) is not None:
                continue
            if material.made_from != made_from(self.limits, chosen_encoding(material)):
                await self._renew(material, Renewal())
        self._queue.start()

    async def stop(self) -> None:
        """Ends reading; what is not read yet waits for the next start. Idempotent."""
        self._is_stopping = True
        await self.parser.close()
        await self._queue.stop()

    async def add(self, course_id: str, new: NewFile) -> tuple[ImportedFile, bool]:
        """Takes a file in. Returns how it goes on, and whether it is new: False where the course
        has these bytes already (a file that failed is then read once more). Raises MaterialError
        for a kind that cannot be read, StorageFullError, ShuttingDownError."""
        self._check_open()
        material, is_new = await self.store(course_id, new)
        reading = self._queue.of_material(material.id)
        if reading is not None:
            return reading.file, is_new
        if material.state == MaterialState.FAILED:
            with suppress(ConflictError):  # it has been read meanwhile
                return await self.retry(material, new), is_new
        if is_new:
            return await self._put(material), is_new
        file = ImportedFile(material.name, material_id=material.id)
        file.end("duplicate")
        return file, is_new

    async def store(self, course_id: str, new: NewFile) -> tuple[Material, bool]:
        """The row of a file, which waits to be read, with its bytes kept; or the row that has
        these bytes already, and False. Raises MaterialError, StorageFullError."""
        staged = new.staged
        known = format_of(staged.name)
        if known is None:
            raise MaterialError("unsupported", name=staged.name, supported=SUPPORTED)
        guessed = guess(staged.name)
        by_hand = {"kind": new.kind, "week": new.week} if new.is_by_hand else {}
        material = Material(
            course_id=course_id,
            name=staged.name,
            title=PurePosixPath(staged.name).stem,
            kind=new.kind or guessed.kind,
            week=guessed.week if new.week is None else new.week,
            format=known.name,
            state=MaterialState.WAITING,
            content_sha256=staged.sha256,
            size_bytes=staged.size,
            is_hidden=new.is_hidden,
            visible_from=new.visible_from,
            uploaded_by=new.uploaded_by,
            edited=[name for name, value in by_hand.items() if value is not None],
        )
        async with self._bytes.lock:
            await self._bytes.keep(staged, course_id)
            try:
                return await self.materials.add(material)
            except IntegrityError:  # the course was deleted while the file came in
                await self._bytes.remove_unneeded(course_id, staged.sha256)
                raise NotFoundError("There is no such course.", param="course") from None
            except SQLAlchemyError as error:
                await self._bytes.remove_unneeded(course_id, staged.sha256)
                if _is_full(error):
                    raise StorageFullError from error
                raise

    async def retry(self, material: Material, new: NewFile | None = None) -> ImportedFile:
        """Reads a material that failed once more; as `new` says where its bytes have come in
        again, since the name may have been what was wrong. Raises ConflictError where it has
        not failed, NotFoundError, ShuttingDownError."""
        self._check_open()
        fields: dict[str, Any] = {"state": MaterialState.WAITING, "attempts": 0, "error_code": None}
        if new is not None:
            fields |= _fields_of(new, material.edited)
        has_failed = False

        def settle(now: Material) -> Settled:
            nonlocal has_failed
            has_failed = now.state == MaterialState.FAILED
            return Settled(fields if has_failed else {})

        # From the look at its row until it is in the line, nobody else takes it.
        async with self._bytes.lock:
            reading = self._queue.of_material(material.id)
            if reading is not None:
                return reading.file
            if not await self.materials.edit(material.id, settle):
                raise NotFoundError("There is no such material.", param="material")
            if not has_failed:
                raise not_failed()
            file = ImportedFile(fields.get("name", material.name), material_id=material.id)
            await self._queue.put(Reading(material.id, material.course_id, file))
            return file

    async def replace(self, material: Material, staged: StagedFile) -> ImportedFile:
        """Other bytes for a material, under the name that they came with. Raises MaterialError,
        ConflictError where another material has them or this one is still being read."""
        if format_of(staged.name) is None:
            raise MaterialError("unsupported", name=staged.name, supported=SUPPORTED)
        async with self._bytes.lock:
            self.check_idle(material)
            other = await self.materials.with_content(material.course_id, staged.sha256)
            if other is not None and other.id != material.id:
                raise ConflictError(
                    f"The course has this file already, as {other.name}.",
                    param="file",
                    message_zh=f"课程中已有此文件：{other.name}。",
                )
            await self._bytes.keep(staged, material.course_id)
            renewal = Renewal(staged, is_promised=True)
            if not await self._promise(material, renewal):
                await self._bytes.remove_unneeded(material.course_id, staged.sha256)
                raise NotFoundError("There is no such material.", param="material")
            return await self._renew(material, renewal)

    async def decode(self, material: Material, encoding: str | None) -> ImportedFile:
        """Reads a material anew in an encoding that somebody chose; None: find it out. Raises
        ConflictError while it is still being read."""
        renewal = Renewal(encoding=encoding, sets_encoding=True, is_promised=True)
        async with self._bytes.lock:
            self.check_idle(material)
            if not await self._promise(material, renewal):
                raise NotFoundError("There is no such material.", param="material")
            return await self._renew(material, renewal)

    async def edit(self, material: Material, fields: dict[str, Any]) -> None:
        """Sets fields by hand: no import changes the title, kind and week any more."""

        def settle(now: Material) -> Settled:
            by_hand = {"title", "kind", "week"} & fields.keys()
            edited = sorted({*now.edited, *by_hand})
            words = edited_title_words(now, fields) if by_hand else None
            return Settled({**fields, "edited": edited}, words)

        await self.materials.edit(material.id, settle)

    async def note(self, material: Material, fields: dict[str, Any]) -> None:
        """Sets fields that a folder's notes tell: an import may change them again."""
        await self.materials.edit(
            material.id, lambda now: Settled(fields, edited_title_words(now, fields))
        )

    async def keep_for(self, material: Material, staged: StagedFile) -> None:
        """Keeps bytes that a material is to have once they are read."""
        async with self._bytes.lock:
            await self._bytes.keep(staged, material.course_id)

    async def delete(self, material_id: str) -> None:
        """Takes a material out, wherever it is on its way, and removes its bytes. Idempotent."""
        await self._queue.drop(lambda reading: reading.material_id == material_id)
        async with self._bytes.lock:
            material = await self.materials.get(material_id)
            await self.materials.delete(material_id)
            if material is not None:
                coming = (material.renewal or {}).get("sha256")
                for sha256 in {material.content_sha256, coming} - {None}:
                    await self._bytes.remove_unneeded(material.course_id, str(sha256))

    def progress(self, material_id: str) -> tuple[int, int] | None:
        """Pages read of a material, and all of them, while that is known."""
        reading = self._queue.of_material(material_id)
        if reading is None or reading.file.page is None or reading.file.pages is None:
            return None
        return reading.file.page, reading.file.pages

    async def read_now(
        self, material: Material, parser: Parses, given: Given, renewal: Renewal | None = None
    ) -> ImportedFile:
        """Reads a material that is in no queue, and returns when that is over."""
        file = ImportedFile(material.name, material_id=material.id)
        reading = Reading(material.id, material.course_id, file, given, renewal)
        await self._reader.read(reading, parser)
        return file

    def _check_open(self) -> None:
        if self._is_stopping:
            raise ShuttingDownError()

    async def _put(self, material: Material) -> ImportedFile:
        file = ImportedFile(material.name, material_id=material.id)
        await self._queue.put(Reading(material.id, material.course_id, file))
        return file

    async def _promise(self, material: Material, renewal: Renewal) -> bool:
        """Writes down what was asked for, so that a restart goes on with it. False when the
        material is gone."""
        return await self.materials.set_renewal(material.id, renewal_row(renewal))

    async def _renew_again(self, material: Material) -> None:
        """Goes on with a renewal that the last end has cut, unless it may have been the reason."""
        assert material.renewal is not None
        renewal = stored_renewal(
            material.renewal, lambda sha256: self.files.path(material.course_id, sha256)
        )
        if material.renewal["attempts"] < MAX_ATTEMPTS:
            await self._renew(material, renewal)
            return
        log.warning("a file for a material is given up: it was begun %d times", MAX_ATTEMPTS)
        await self.materials.set_renewal(material.id, None)
        if renewal.staged is not None:
            async with self._bytes.lock:
                await self._bytes.remove_unneeded(material.course_id, renewal.staged.sha256)

    async def _renew(self, material: Material, renewal: Renewal) -> ImportedFile:
        staged = renewal.staged
        file = ImportedFile(staged.name if staged else material.name, material_id=material.id)
        given = Given(_kind_of(material), material.week) if staged else NOTHING_GIVEN
        reading = Reading(material.id, material.course_id, file, given, renewal)
        await self._queue.put(reading)
        return file

    async def _read_queued(self, reading: Reading) -> None:
        await self._reader.read(reading, self.parser)

    def check_idle(self, material: Material) -> None:
        self._check_open()
        if self._queue.of_material(material.id) is not None:
            raise ConflictError(
                f"{material.name} is still being read; wait until that is over.",
                message_zh=f"{material.name} 仍在解析中，请稍候。",
            )


def not_failed() -> ConflictError:
    """For a retry of a material that has not failed."""
    return ConflictError(
        "Only a material that failed can be tried again.",
        message_zh="只有解析失败的资料才能重试。",
    )


def _is_full(error: SQLAlchemyError) -> bool:
    """Whether the database had no room left."""
    cause = getattr(error, "orig", None)
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    return code == sqlite3.SQLITE_FULL or getattr(cause, "sqlstate", None) == _PG_DISK_FULL


def _fields_of(new: NewFile, edited: Sequence[str]) -> dict[str, Any]:
    """What a file's name and its uploader say of a material that is there already, but for what
    was set by hand."""
    name = new.staged.name
    known, guessed = format_of(name), guess(name)
    assert known is not None
    fields = {
        "title": PurePosixPath(name).stem,
        "kind": new.kind or guessed.kind,
        "week": guessed.week if new.week is None else new.week,
    }
    kept = {key: value for key, value in fields.items() if key not in edited}
    seen = {"is_hidden": new.is_hidden, "visible_from": new.visible_from}
    return {"name": name, "format": known.name, **kept, **seen}


def _kind_of(material: Material) -> Kind | None:
    return next((kind for kind in KINDS if kind == material.kind), None)
