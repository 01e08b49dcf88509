"""What the application's JSON API answers with."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from server.service.errors import ServiceError

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


def json_reply(value: Any, status_code: int = 200) -> Response:
    """`value` as JSON, which nobody keeps."""
    return Response(
        msgspec.json.encode(value),
        status_code=status_code,
        media_type="application/json",
        headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
    )
