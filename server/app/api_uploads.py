"""Files come in: routes that take uploads. `server.app.api_materials` describes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from server.app.access import Access, Member, Need, guarded, material_of, member_of, person_of
from server.app.api_replies import json_reply
from server.app.import_replies import ImportReplies
from server.app.material_fields import read_flag, read_kind, read_visible_from, read_week
from server.app.material_json import MaterialRefusedError, import_json
from server.app.materials.archive import unpacked
from server.app.materials.errors import MaterialError
from server.app.materials.files import StagedFile
from server.app.materials.import_jobs import ImportedFile
from server.app.materials.library import Library, NewFile, not_failed
from server.app.materials.parser_process import ParserClosedError
from server.app.materials.uploads import RefusedFile, Upload, UploadLimits, is_archive, receive
from server.service.errors import (
    BadRequestError,
    BodyTooLargeError,
    ShuttingDownError,
)
from server.store.schema import MaterialState

Make = Callable[[StagedFile], NewFile]
_MIB = 1024 * 1024


class UploadApi:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self, access: Access, library: Library, replies: ImportReplies, limits: UploadLimits
    ) -> None:
        self._access = access
        self._library = library
        self._replies = replies
        self._limits = limits

    def routes(self) -> list[BaseRoute]:
        """The routes, ready for an application."""
        teacher, one = Need.COURSE_TEACHER, "/api/materials/{material}"
        return [
            guarded("/api/courses/{course}/materials", self.upload, ["POST"], teacher),
            guarded("/api/imports/{import}", self.progress, ["GET"], Need.KNOWN),
            guarded(f"{one}/file", self.replace, ["PUT"], teacher),
            guarded(f"{one}/retry", self.retry, ["POST"], teacher),
        ]

    async def upload(self, request: Request) -> Response:
        """New materials."""
        member = member_of(request)
        async with receive(request, self._library.files, self._limits) as upload:
            make = _maker(upload, member)
            if len(upload.files) > 1 or is_archive(upload.files[0].name):
                files = await self._add_all(member.course_id, upload.files, make)
                return self._replies.many(member.course_id, files)
            staged = self._taken(upload.files[0])
            try:
                file, is_new = await self._library.add(member.course_id, make(staged))
            except MaterialError as error:
                raise MaterialRefusedError(error) from None
        return await self._replies.one(
            request, member.course_id, file, status=201, is_duplicate=not is_new
        )

    async def progress(self, request: Request) -> Response:
        """How far an import is."""
        job = self._replies.job(request.path_params["import"])
        await self._access.course_teacher(person_of(request).user, job.course_id)
        return json_reply(import_json(job))

    async def replace(self, request: Request) -> Response:
        """Other bytes for a material."""
        material = material_of(request)
        async with receive(request, self._library.files, self._limits) as upload:
            if len(upload.files) > 1 or is_archive(upload.files[0].name):
                raise BadRequestError("A material is replaced by one file.", param="file")
            try:
                file = await self._library.replace(material, self._taken(upload.files[0]))
            except MaterialError as error:
                raise MaterialRefusedError(error) from None
        return await self._replies.one(request, material.course_id, file)

    async def retry(self, request: Request) -> Response:
        """A material that failed, read once more."""
        material = material_of(request)
        if material.state != MaterialState.FAILED:
            raise not_failed()
        file = await self._library.retry(material)
        return await self._replies.one(request, material.course_id, file)

    def _taken(self, file: StagedFile | RefusedFile) -> StagedFile:
        if isinstance(file, StagedFile):
            return file
        most = self._limits.max_file_bytes / _MIB
        raise BodyTooLargeError(
            f"{file.name} is larger than {most:g} MiB, the most that a file may have.",
            param="file",
            message_zh=f"{file.name} 超过单个文件的上限 {most:g} MiB。",
        )

    async def _add_all(
        self, course_id: str, taken: Sequence[StagedFile | RefusedFile], make: Make
    ) -> list[ImportedFile]:
        """Every file, and those in archives: each goes its own way."""
        files: list[ImportedFile] = []
        for one in taken:
            if isinstance(one, StagedFile) and is_archive(one.name):
                files += await self._add_archive(course_id, one, make)
            else:
                files.append(await self._add_one(course_id, one, make))
        return _told_once(files)

    async def _add_archive(
        self, course_id: str, archive: StagedFile, make: Make
    ) -> list[ImportedFile]:
        async with AsyncExitStack() as stack:
            try:
                members = await stack.enter_async_context(
                    unpacked(
                        archive,
                        self._library.parser,
                        self._library.files,
                        max_bytes=self._limits.max_file_bytes,
                    )
                )
            except MaterialError as error:
                return [_refused(archive.name, error)]
            except ParserClosedError:
                raise ShuttingDownError() from None
            return [await self._add_one(course_id, member, make) for member in members]

    async def _add_one(
        self, course_id: str, one: StagedFile | RefusedFile, make: Make
    ) -> ImportedFile:
        if isinstance(one, RefusedFile):
            return _refused(one.name, one.error)
        try:
            file, _ = await self._library.add(course_id, make(one))
        except MaterialError as error:
            return _refused(one.name, error)
        return file


def _told_once(files: Sequence[ImportedFile]) -> list[ImportedFile]:
    """The same bytes twice in one upload are read once: the second is a duplicate of the first."""
    told: list[ImportedFile] = []
    for file in files:
        if any(file is other for other in told):
            file = ImportedFile(file.name, material_id=file.material_id)
            file.end("duplicate")
        told.append(file)
    return told


def _refused(name: str, error: MaterialError) -> ImportedFile:
    file = ImportedFile(name)
    file.fail(error)
    return file


def _maker(upload: Upload, member: Member) -> Make:
    """What the form says about all of its files. Raises BadRequestError."""
    fields = upload.fields
    kind = read_kind(fields["kind"]) if fields.get("kind") else None
    week = read_week(fields["week"]) if fields.get("week") else None
    visible_from: datetime | None = None
    if fields.get("visible_from"):
        visible_from = read_visible_from(fields["visible_from"], member.course.timezone)
    is_hidden = read_flag(fields["is_hidden"], "is_hidden") if fields.get("is_hidden") else False

    def make(staged: StagedFile) -> NewFile:
        return NewFile(
            staged,
            kind=kind,
            week=week,
            is_hidden=is_hidden,
            visible_from=visible_from,
            uploaded_by=member.user,
        )

    return make
