"""What the application's JSON API answers with."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from server.service.errors import ServiceError

_UNQUOTED = str.maketrans("", "", '"/\\')

Endpoint = Callable[[Request], Awaitable[Response]]


def told(endpoint: Endpoint) -> Endpoint:
    """The endpoint with its ServiceErrors as JSON replies."""

    @wraps(endpoint)
    async def telling(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ServiceError as error:
            return error_reply(error)

    return telling


def error_reply(error: ServiceError) -> Response:
    """A refusal as JSON."""
    headers = {"Cache-Control": "no-store"}
    if error.retry_after_ms is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_ms / 1000)))
    return Response(
        error.openai_body(),
        status_code=error.http_status,
        media_type="application/json",
        headers=headers,
    )


def etag_reply(request: Request, value: Any) -> Response:
    """`value` as JSON with an `ETag`; 304 without a body for who has it already. Nobody between
    the server and the page keeps it: the page itself may, and asks with `If-None-Match`."""
    body = msgspec.json.encode(value)
    tag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "ETag": tag}
    known = request.headers.get("if-none-match", "")
    # A proxy that packs a reply weakens its tag.
    if any(one.strip().removeprefix("W/") in (tag, "*") for one in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def attachment(name: str) -> str:
    """A `Content-Disposition` for a download called `name`: as it is for who reads RFC 5987, and
    what of it is ASCII, accents taken off, for who does not. `name` has no sign that a file's name
    may not have."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    # Some signs are taken apart into those that part a name or end a quotation: ℀, ＂.
    plain = " ".join(plain.translate(_UNQUOTED).split())
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def json_reply(value: Any, status_code: int = 200) -> Response:
    """`value` as JSON, which nobody keeps."""
    return Response(
        msgspec.json.encode(value),
        status_code=status_code,
        media_type="application/json",
        headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
    )
