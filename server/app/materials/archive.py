"""`unpacked`: the files of an uploaded zip file, each taken in like an upload of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread

from server.app.materials.errors import MaterialError
from server.app.materials.files import MaterialFiles, StagedFile
from server.app.materials.naming import shown_path
from server.app.materials.parser_process import ArchiveMember, ParserProcess
from server.app.materials.uploads import RefusedFile


@asynccontextmanager
async def unpacked(
    archive: StagedFile, parser: ParserProcess, files: MaterialFiles, *, max_bytes: int
) -> AsyncIterator[list[StagedFile | RefusedFile]]:
    """The files in `archive`, in its order; at the end of the block, what nobody has kept is
    removed. `max_bytes`: the largest file. Raises MaterialError for the archive as a whole,
    StorageFullError, ParserClosedError."""
    taken: list[StagedFile | RefusedFile] = []
    try:
        with files.folder() as folder:
            members = await parser.list_archive(archive.path, archive.name, folder)
            if not members:
                raise MaterialError("no_text", name=archive.name)
            for member in members:
                one = await anyio.to_thread.run_sync(_take, member, archive.name, files, max_bytes)
                taken.append(one)
        yield taken
    finally:
        for staged in taken:
            if isinstance(staged, StagedFile):
                await anyio.to_thread.run_sync(files.drop, staged)


def _take(
    member: ArchiveMember, archive_name: str, files: MaterialFiles, max_bytes: int
) -> StagedFile | RefusedFile:
    name = shown_path(member.name) or archive_name
    if member.file is None:
        return RefusedFile(name, member.error or MaterialError("not_this_format", name=name))
    try:
        with Path(member.file).open("rb") as source:
            return files.stage(source, name, max_bytes=max_bytes)
    except MaterialError as error:
        return RefusedFile(name, error)
    finally:
        member.file.unlink(missing_ok=True)
