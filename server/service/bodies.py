"""`Bodies`: request bodies that are on their way. None is waited for longer than it may take, and
none at all once the server is to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from server.service.errors import BodyTooLargeError, ShuttingDownError, SlowRequestError
from server.service.exchange import Exchange
from server.service.http import ClientGoneError, Message, Receive, header
from server.service.limits import ServiceLimits

_DRAINED = 8 << 20
"""Bytes beyond the limit that are still taken before the connection is cut."""


class Bodies:
    """Owned by the event loop's thread."""

    def __init__(self, limits: ServiceLimits) -> None:
        self._limits = limits
        self._deadlines: set[asyncio.Timeout] = set()
        self._is_draining = False

    @property
    def num_awaited(self) -> int:
        """Bodies of which the next part has not arrived yet."""
        return len(self._deadlines)

    def drain(self) -> None:
        """From now on only what has arrived is taken. Idempotent."""
        self._is_draining = True
        for deadline in self._deadlines:
            if not deadline.expired():
                deadline.reschedule(0.0)

    async def read(self, exchange: Exchange) -> bytes:
        """A whole body, within `body_timeout_s`. Raises BodyTooLargeError, SlowRequestError,
        ShuttingDownError, ClientGoneError."""
        limit = self._limits.max_body_bytes
        declared = header(exchange.scope, b"content-length")
        is_hopeless = (
            declared is not None and declared.isdigit() and int(declared) > limit + _DRAINED
        )
        chunks: list[bytes] = []
        size = 0
        async with self._awaited(exchange):
            while not is_hopeless:
                message = await exchange.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                chunk = message.get("body", b"")
                size += len(chunk)
                # A client that is cut while it sends never reads the reply: so a body a little
                # too large is taken to its end and dropped.
                if size <= limit:
                    chunks.append(chunk)
                is_hopeless = size > limit + _DRAINED
                if not message.get("more_body", False):
                    break
        if is_hopeless or size > limit:
            raise BodyTooLargeError(f"The request body is larger than {limit} bytes.")
        return b"".join(chunks)

    def awaited(self, exchange: Exchange) -> Receive:
        """The `receive` of a request whose body somebody else reads, however long all of it
        takes: each part of it comes within `body_timeout_s` after the one before. Raises
        SlowRequestError and ShuttingDownError."""
        is_whole = False

        async def receive() -> Message:
            nonlocal is_whole
            # What comes behind the body is the client's going; so is what is waited for beside a
            # reply that has begun, whatever its client has not sent.
            if is_whole or exchange.status is not None:
                return await exchange.receive()
            try:
                async with self._awaited(exchange):
                    message = await exchange.receive()
            except (SlowRequestError, ShuttingDownError):
                if exchange.status is None:
                    raise
                return await exchange.receive()
            is_whole = not message.get("more_body", False)
            return message

        return receive

    @asynccontextmanager
    async def _awaited(self, exchange: Exchange) -> AsyncIterator[None]:
        # Nothing is cancelled that does not wait: what is there already comes in time.
        time_s = 0.0 if self._is_draining else self._limits.body_timeout_s
        deadline = asyncio.timeout(time_s)
        try:
            async with deadline:
                self._deadlines.add(deadline)
                yield
        except TimeoutError:
            exchange.headers.append((b"connection", b"close"))  # the rest of it is not read
            if self._is_draining:
                raise ShuttingDownError() from None
            raise SlowRequestError("The request body did not arrive in time.") from None
        finally:
            self._deadlines.discard(deadline)
