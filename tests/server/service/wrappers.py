"""Middleware, as sites put around an application: behind it nobody can reach the transport."""

from __future__ import annotations

from server.service.http import ASGIApp, Message, Receive, Scope, Send


def wrapped(send: Send) -> Send:
    """As a middleware hands it on."""

    async def pass_on(message: Message) -> None:
        await send(message)

    return pass_on


class Wrapped:
    """Pure ASGI: both channels are functions of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def own_receive() -> Message:
            return await receive()

        await self._app(scope, own_receive, wrapped(send))
