"""`StaticTree`: the page's files, held in memory and served under one content hash.

The hash covers the whole tree and stands in the path (`/static/<hash>/js/main.js`), so that the
relative imports between ES modules, and the font addresses inside style sheets, carry it too.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

_IMMUTABLE = "max-age=31536000, immutable"
_REVALIDATE = "no-cache"
_MEDIA_TYPES = {
    # The system's table is not to be trusted for these: a module with another type does not run.
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
_COMPRESSED = frozenset({".js", ".mjs", ".css", ".json", ".svg"})
_HASH_CHARS = 16


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file. `gzip_body` is None where compression saves nothing worth its header."""

    body: bytes
    gzip_body: bytes | None
    media_type: str
    etag: str


class StaticTree:
    """Every file below a folder, read once; immutable afterwards, so any thread may use it."""

    def __init__(self, files: Mapping[str, StaticFile]) -> None:
        self._files = dict(files)
        digest = hashlib.sha256()
        for path in sorted(self._files):
            digest.update(f"{path}\0{self._files[path].etag}\0".encode())
        self.version = digest.hexdigest()[:_HASH_CHARS]

    @classmethod
    def load(cls, root: Path) -> StaticTree:
        """Reads every file below `root`; dot files and folders are left out."""
        relative = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
        visible = sorted(
            path for path in relative if not any(part.startswith(".") for part in path.parts)
        )
        return cls({path.as_posix(): _read(root / path) for path in visible})

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def paths(self) -> list[str]:
        """All paths, sorted, relative to the root."""
        return sorted(self._files)

    def url(self, path: str) -> str:
        """The address of a file, with the content hash. Raises KeyError for an unknown path."""
        if path not in self._files:
            raise KeyError(path)
        return f"/static/{self.version}/{path}"

    def response(self, request: Request, path: str) -> Response:
        """The reply for what follows `/static/`: cached for ever under the current hash, to be
        revalidated under an old one or none (a page from before an update still finds its
        modules), 404 for anything else."""
        version, _, rest = path.partition("/")
        file = self._files.get(rest)
        current = file is not None and version == self.version
        if file is None and not _is_hash(version):
            file = self._files.get(path)
        elif file is not None and not current and not _is_hash(version):
            file = None
        if file is None:
            return Response("Not found", 404, media_type="text/plain")
        headers = {
            "Cache-Control": _IMMUTABLE if current else _REVALIDATE,
            "Vary": "Accept-Encoding",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        if not current:  # what never changes is not asked for again, and needs no tag
            headers["ETag"] = file.etag
            if file.etag in request.headers.get("if-none-match", ""):
                return Response(status_code=304, headers=headers)
        body = file.body
        if file.gzip_body is not None and "gzip" in request.headers.get("accept-encoding", ""):
            body = file.gzip_body
            headers["Content-Encoding"] = "gzip"
        headers["Content-Type"] = file.media_type
        return Response(body, headers=headers)


def _is_hash(part: str) -> bool:
    return len(part) == _HASH_CHARS and all(char in "0123456789abcdef" for char in part)


def _read(path: Path) -> StaticFile:
    body = path.read_bytes()
    suffix = path.suffix.lower()
    media_type = _MEDIA_TYPES.get(suffix) or mimetypes.guess_type(path.name)[0] or "text/plain"
    gzip_body = gzip.compress(body, 9, mtime=0) if suffix in _COMPRESSED else None
    if gzip_body is not None and len(gzip_body) > 0.9 * len(body):
        gzip_body = None
    etag = f'"{hashlib.sha256(body).hexdigest()[:_HASH_CHARS]}"'
    return StaticFile(body, gzip_body, media_type, etag)
