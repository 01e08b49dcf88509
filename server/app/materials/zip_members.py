"""`unpack`: the files in an uploaded zip file, each under a name of ours."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from server.app.materials.document import ParseLimits
from server.app.materials.errors import MaterialError
from server.app.materials.parser import SUPPORTED, is_supported
from server.app.materials.worker_messages import MemberRecord
from server.app.materials.zip_guard import BROKEN_ZIP

MAX_FILES = 500
MAX_UNPACKED_BYTES = 256 * 1024 * 1024
MAX_RATIO = 200
"""A file that unpacks to more than this many times its size is no document."""
_RATIO_FREE_BYTES = 1024 * 1024
_IS_ENCRYPTED, _IS_UTF8 = 0x1, 0x800
_CHUNK_BYTES = 256 * 1024
_MIB = 1024 * 1024


def unpack(path: Path, name: str, into: Path, limits: ParseLimits) -> Iterator[MemberRecord]:
    """Each file of the archive `path`, which people know as `name`, unpacked into the folder
    `into`, or the reason why not. What systems put beside people's files is passed over. Raises
    MaterialError where the archive as a whole cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if not m.is_dir() and not _is_clutter(m)]
            _check(members, name)
            for number, member in enumerate(members):
                shown = _shown_name(member)
                try:
                    file = _unpack_one(archive, member, shown, into / f"{number:04d}", limits)
                except MaterialError as error:
                    yield MemberRecord(shown, member.file_size, None, error.code, error.facts)
                else:
                    yield MemberRecord(shown, member.file_size, str(file))
    except BROKEN_ZIP as error:
        raise MaterialError("not_this_format", name=name) from error


def _check(members: list[zipfile.ZipInfo], name: str) -> None:
    if len(members) > MAX_FILES:
        raise MaterialError("too_many_files", name=name, files=len(members), most=MAX_FILES)
    if sum(member.file_size for member in members) > MAX_UNPACKED_BYTES:
        raise MaterialError("inflates_too_much", name=name, most_mb=MAX_UNPACKED_BYTES // _MIB)


def _unpack_one(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    shown: str,
    target: Path,
    limits: ParseLimits,
) -> Path:
    name = PurePosixPath(shown).name
    if not is_supported(name):
        raise MaterialError("unsupported", name=shown, supported=SUPPORTED)
    if member.flag_bits & _IS_ENCRYPTED:
        raise MaterialError("password_required", name=shown)
    if member.file_size > limits.max_file_bytes:
        raise MaterialError("too_big", name=shown)
    if member.file_size > max(_RATIO_FREE_BYTES, MAX_RATIO * member.compress_size):
        most_mb = _RATIO_FREE_BYTES // _MIB
        raise MaterialError("inflates_too_much", name=shown, most_mb=most_mb)
    try:
        with archive.open(member) as source, target.open("xb") as sink:
            while chunk := source.read(_CHUNK_BYTES):
                sink.write(chunk)
    except BROKEN_ZIP as error:
        target.unlink(missing_ok=True)
        raise MaterialError("not_this_format", name=shown) from error
    return target


def _is_clutter(member: zipfile.ZipInfo) -> bool:
    """What macOS, Windows and Office leave in a folder."""
    *folders, name = PurePosixPath(member.filename.replace("\\", "/")).parts or ("",)
    return (
        "__MACOSX" in folders
        or name.startswith((".", "~$"))
        or name.lower() in ("", "thumbs.db", "desktop.ini")
    )


def _shown_name(member: zipfile.ZipInfo) -> str:
    """The member's path as it was written. Without the mark for UTF-8 many programs write names
    in the system's encoding, which `zipfile` reads as code page 437."""
    name = member.filename
    if not member.flag_bits & _IS_UTF8:
        raw = name.encode("cp437", "replace")
        for encoding in ("utf-8", "gb18030"):
            try:
                name = raw.decode(encoding)
                break
            except UnicodeDecodeError:
                continue
    return name.replace("\\", "/")
