"""Plain ASGI for the hot routes: send a reply, notice a client that goes away.

No framework object and no middleware stands between a route and `send`: each wrapper costs a
coroutine per event and stream.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from server.service.errors import BadRequestError, ServiceError
from server.service.ids import new_hex

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_SAFE_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class ClientGoneError(Exception):
    """The client closed its connection while it was being answered."""


class SlowClientError(Exception):
    """The client took no data for `send_timeout_s`."""


async def in_time(sending: Awaitable[None], timeout_s: float) -> None:
    """Raises SlowClientError where the client lets `sending` wait for longer."""
    try:
        async with asyncio.timeout(timeout_s):
            await sending
    except TimeoutError:
        raise SlowClientError from None


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of that (lower case) name."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def text_header(scope: Scope, name: bytes) -> str | None:
    """The first header of that name as text (latin-1, as HTTP has it)."""
    value = header(scope, name)
    return None if value is None else value.decode("latin-1")


def request_id(scope: Scope) -> bytes:
    """The client's `X-Request-Id` if it is short printable ASCII, else a new one. Only ever a
    label: two requests may bear the same."""
    given = header(scope, b"x-request-id")
    if given is not None and _SAFE_ID.fullmatch(given):
        return given
    return new_hex(8).encode()


def read_json_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object. Raises BadRequestError."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadRequestError(
            "The request body is not valid JSON in UTF-8 (which has no NaN and no Infinity)."
        ) from None
    if not isinstance(found, dict):
        raise BadRequestError("The request body must be a JSON object.")
    return found


async def send_reply(
    send: Send,
    body: bytes,
    *,
    status: int = 200,
    content_type: bytes = b"application/json",
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """A whole reply at once."""
    all_headers: Headers = [
        (b"content-type", content_type),
        (b"content-length", str(len(body)).encode()),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


async def send_error(
    send: Send, error: ServiceError, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """The error as OpenAI's JSON with its status; `Retry-After` where it is known."""
    extra: Headers = list(headers)
    if error.retry_after_ms is not None:
        extra.append((b"retry-after", str(max(1, -(-error.retry_after_ms // 1000))).encode()))
    if error.http_status == 413:
        extra.append((b"connection", b"close"))  # the rest of the body is not read
    await send_reply(send, error.openai_body(), status=error.http_status, headers=extra)


def sent_at_once(send: Send) -> Send:
    """For a client of HTTP/1.0, which knows no chunks: a reply of unknown length is kept to its
    end and sent with its length."""
    start: Message = {}
    kept: list[bytes] = []

    async def keep(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            start = message
            return
        kept.append(message.get("body", b""))
        if message.get("more_body", False):
            return
        body = b"".join(kept)
        headers = [pair for pair in start["headers"] if pair[0] != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await send({**start, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return keep


@asynccontextmanager
async def watch_client(receive: Receive) -> AsyncIterator[None]:
    """Inside the block a client that goes away raises ClientGoneError at the next await.

    For use after the body was read: what `receive` has to say then is the disconnect."""
    task = asyncio.current_task()
    assert task is not None
    is_gone = False

    async def listen() -> None:
        nonlocal is_gone
        while (await receive())["type"] != "http.disconnect":
            pass
        is_gone = True
        task.cancel()

    listener = asyncio.create_task(listen())
    try:
        yield
    except asyncio.CancelledError:
        # As asyncio.timeout does: only our own cancellation becomes our exception.
        if is_gone and task.uncancel() == 0:
            raise ClientGoneError from None
        raise
    finally:
        listener.cancel()
        await asyncio.gather(listener, return_exceptions=True)


def abort_connection(send: Send) -> None:
    """Drops a connection whose client does not read. ASGI has no word for it, and returning
    from the application would wait for the client to take what is buffered; uvicorn's `send` is
    a method of the object that holds the transport. Does nothing under another server."""
    sender = getattr(send, "__self__", None)
    abort = getattr(getattr(sender, "transport", None), "abort", None)
    if sender is not None and callable(abort):
        abort()
        # It hears of it a turn of the loop later, and would call the reply unfinished till then.
        sender.disconnected = True
