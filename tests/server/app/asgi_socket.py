"""A WebSocket to an application in the same loop: frames go in and come out as JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from server.service.auth import COOKIE_NAME
from server.service.http import ASGIApp, Message
from tests.server.app.site import Site

PATIENCE_S = 20.0


class AppSocket:
    """The client's end."""

    def __init__(self) -> None:
        self.to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()

    async def take(self, message: Message) -> None:
        """What the application sends."""
        await self._from_app.put(message)

    async def send(self, type: str, **fields: Any) -> None:
        """One message, as the page sends it."""
        text = json.dumps({"type": type, **fields})
        await self.to_app.put({"type": "websocket.receive", "text": text})

    async def until(self, *types: str) -> dict[str, Any]:
        """The next message of one of these types; `{"type": "close", "code", "reason"}` is one
        where the socket was closed, whatever was waited for."""
        while True:
            async with asyncio.timeout(PATIENCE_S):
                message = await self._from_app.get()
            if message["type"] == "websocket.close":
                return {"type": "close", "code": message["code"], "reason": message["reason"]}
            if message["type"] == "websocket.send":
                found: dict[str, Any] = json.loads(message["text"])
                if found["type"] in types:
                    return found


@asynccontextmanager
async def socket_of(site: Site, session: str | None) -> AsyncIterator[AppSocket]:
    """A page's socket with this session cookie."""
    socket = AppSocket()
    cookie = [(b"cookie", f"{COOKIE_NAME}={session}".encode())] if session else []
    scope = {
        "type": "websocket",
        "path": "/ws/v1",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), *cookie],
        "subprotocols": ["lectern.v1"],
        "extensions": {},
    }
    await socket.to_app.put({"type": "websocket.connect"})
    serving = asyncio.create_task(_serve(site.app, scope, socket))
    try:
        yield socket
    finally:
        await socket.to_app.put({"type": "websocket.disconnect", "code": 1000})
        await serving


async def _serve(app: ASGIApp, scope: dict[str, Any], socket: AppSocket) -> None:
    await app(scope, socket.to_app.get, socket.take)
