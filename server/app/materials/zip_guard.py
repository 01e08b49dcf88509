"""`check_office_file`: whether a docx or pptx may be opened.

The libraries behind read every part into memory, at once. So the sizes that the file declares
must be small enough, and true: each part is read through in small pieces first.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from lzma import LZMAError

from server.app.materials.document import ParseLimits
from server.app.materials.errors import MaterialError

MAX_MEMBERS = 5000
_MAX_OTHER_SHARE = 4
_OLE = b"\xd0\xcf\x11\xe0"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_IS_ENCRYPTED = 1
_CHUNK_BYTES = 64 * 1024

BROKEN_ZIP = (
    *(zipfile.BadZipFile, zlib.error, LZMAError, EOFError),
    *(OSError, ValueError, NotImplementedError),
)
"""What `zipfile` raises for files that are not what they should be."""


def check_office_file(data: bytes, name: str, limits: ParseLimits) -> None:
    """Raises MaterialError where the file is locked, no zip file, or too much inside: markup
    may take `limits.max_inflated_bytes`, and pictures with it four times as much."""
    if data.startswith(_OLE):
        code = "password_required" if _ENCRYPTED in data else "not_this_format"
        raise MaterialError(code, name=name)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check_sizes(archive.infolist(), name, limits)
            for member in archive.infolist():
                with archive.open(member) as part:
                    while part.read(_CHUNK_BYTES):  # at its end the checksum is compared
                        pass
    except BROKEN_ZIP as error:
        raise MaterialError("not_this_format", name=name) from error


def _check_sizes(members: Sequence[zipfile.ZipInfo], name: str, limits: ParseLimits) -> None:
    if any(member.flag_bits & _IS_ENCRYPTED for member in members):
        raise MaterialError("password_required", name=name)
    markup = sum(m.file_size for m in members if m.filename.lower().endswith((".xml", ".rels")))
    everything = sum(member.file_size for member in members)
    most = limits.max_inflated_bytes
    is_too_much = markup > most or everything > _MAX_OTHER_SHARE * most
    if is_too_much or len(members) > MAX_MEMBERS:
        raise MaterialError("inflates_too_much", name=name, most_mb=most // (1024 * 1024))
