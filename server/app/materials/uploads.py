"""`receive`: the files of a multipart form, taken in while they come, within limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio.to_thread
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from server.app.materials.errors import MaterialError
from server.app.materials.files import MaterialFiles, StagedFile
from server.app.materials.naming import shown_name
from server.app.materials.upload_errors import NotAnUploadError
from server.service.errors import BadRequestError, BodyTooLargeError

FIELD = "file"
_MAX_FIELDS = 20
_MAX_FIELD_BYTES = 1024
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What an upload may hold, in bytes: all of it, and each file; and how many files."""

    max_bytes: int
    max_file_bytes: int
    max_files: int


@dataclass(frozen=True, slots=True)
class RefusedFile:
    """A file of an upload that was not taken in."""

    name: str
    error: MaterialError


@dataclass(frozen=True, slots=True)
class Upload:
    """The files of a form, in its order, and its other fields."""

    files: tuple[StagedFile | RefusedFile, ...]
    fields: Mapping[str, str]


@asynccontextmanager
async def receive(
    request: Request, files: MaterialFiles, limits: UploadLimits
) -> AsyncIterator[Upload]:
    """The upload; at the end of the block, what nobody has kept of it is removed. A zip file may
    be as large as the upload. Raises NotAnUploadError, BadRequestError, BodyTooLargeError,
    StorageFullError, and what the request's `receive` does."""
    if (
        request.headers.get("content-type", "").partition(";")[0].strip().lower()
        != "multipart/form-data"
    ):
        raise NotAnUploadError
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limits.max_bytes:
        raise _too_large(limits)
    counted = Request(request.scope, _counted(request, limits))
    taken: list[StagedFile | RefusedFile] = []
    fields: dict[str, str] = {}
    try:
        try:
            form = counted.form(
                max_files=limits.max_files, max_fields=_MAX_FIELDS, max_part_size=_MAX_FIELD_BYTES
            )
            async with form as parts:
                for key, value in parts.multi_items():
                    if isinstance(value, str):
                        fields[key] = value
                    elif key == FIELD:
                        taken.append(await _take(value, files, limits))
        except HTTPException as error:
            raise BadRequestError(f"The form cannot be read: {error.detail}", param=FIELD) from None
        except (UnicodeError, LookupError):  # of the character set that the type names
            raise BadRequestError("The form's charset is none.", param=FIELD) from None
        except ClientDisconnect:
            raise BadRequestError("The upload did not arrive whole.", param=FIELD) from None
        if not taken:
            raise BadRequestError("The form has no field 'file' with a file in it.", param=FIELD)
        yield Upload(tuple(taken), fields)
    finally:
        for staged in taken:
            if isinstance(staged, StagedFile):
                await anyio.to_thread.run_sync(files.drop, staged)


async def _take(
    part: UploadFile, files: MaterialFiles, limits: UploadLimits
) -> StagedFile | RefusedFile:
    name = shown_name(part.filename or "")
    if not name:
        raise BadRequestError("A file of the form has no name.", param=FIELD)
    max_bytes = limits.max_bytes if is_archive(name) else limits.max_file_bytes
    try:
        return await anyio.to_thread.run_sync(
            lambda: files.stage(part.file, name, max_bytes=max_bytes)
        )
    except MaterialError as error:
        return RefusedFile(name, error)


def is_archive(name: str) -> bool:
    """Whether a file is to be unpacked first."""
    return name.lower().endswith(".zip")


def _counted(request: Request, limits: UploadLimits) -> Receive:
    """The request's messages, until there are too many bytes in them."""
    num_bytes = 0

    async def receive() -> Message:
        nonlocal num_bytes
        message = await request.receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > limits.max_bytes:
            raise _too_large(limits)
        return message

    return receive


def _too_large(limits: UploadLimits) -> BodyTooLargeError:
    most = limits.max_bytes / _MIB
    return BodyTooLargeError(
        f"The upload is larger than {most:g} MiB. Upload fewer files at once.",
        param=FIELD,
        message_zh=f"上传内容超过 {most:g} MiB，请分批上传。",
    )
