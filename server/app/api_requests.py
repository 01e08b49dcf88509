"""What the application's JSON API is asked with: bodies as structs, and where they come from."""

from __future__ import annotations

import ipaddress
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from server.service.errors import BadRequestError, BodyTooLargeError
from server.service.validation import told_validation

MAX_BODY_BYTES = 64 * 1024
"""Largest JSON body of the API: settings and questions, no files."""

Body = TypeVar("Body", bound=msgspec.Struct)


async def json_body(request: Request, kind: type[Body], *, max_bytes: int = MAX_BODY_BYTES) -> Body:
    """The request's body; no body counts as `{}`. Raises BadRequestError, which names the field,
    and BodyTooLargeError."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise BodyTooLargeError(f"The request body is larger than {max_bytes} bytes.")
    except ClientDisconnect:
        raise BadRequestError("The request body did not arrive.") from None
    try:
        return msgspec.json.decode(bytes(body) or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise told_validation(error) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadRequestError("The request body is not valid JSON in UTF-8.") from None


def client_address(request: Request) -> str:
    """Whose tries count together. A proxy on this machine says whom it speaks for; anybody else's
    word is not taken."""
    host = request.client.host if request.client else ""
    forwarded = request.headers.get("x-forwarded-for")
    if forwarded is None or not _is_loopback(host):
        return host
    return forwarded.rpartition(",")[2].strip()[:64]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
