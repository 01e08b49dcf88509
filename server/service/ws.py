"""`/ws/v1`: the handshake (origin, subprotocol, cookie) and the set of open sessions."""

from __future__ import annotations

import asyncio

from server.service.auth import UserId
from server.service.errors import ForbiddenError
from server.service.http import Receive, Scope, Send, text_header
from server.service.ws_context import SocketContext
from server.service.ws_session import CLOSE_GOING_AWAY, CLOSE_POLICY, WebSocketSession
from server.service.ws_writer import CLOSE_OVERLOAD, TOO_MANY_CONNECTIONS

SUBPROTOCOL = "lectern.v1"


class WebSocketRoute:
    """Owned by the event loop's thread."""

    def __init__(self, context: SocketContext) -> None:
        self._context = context
        self._sessions: set[WebSocketSession] = set()
        self._is_closed = False
        self._all_gone = asyncio.Event()

    @property
    def num_sessions(self) -> int:
        return len(self._sessions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        # Accepted even when refused: a close code reaches the page, a failed handshake does not.
        subprotocol = SUBPROTOCOL if SUBPROTOCOL in scope.get("subprotocols", ()) else None
        await send({"type": "websocket.accept", "subprotocol": subprotocol})
        refusal = self._refusal(scope)
        if refusal is not None:
            code, reason = refusal
            await send({"type": "websocket.close", "code": code, "reason": reason})
            return
        # A listed site's page is a program as any other: the reader's cookie is not for it.
        is_own = self._context.origins.is_own(scope)
        cookie = text_header(scope, b"cookie") if is_own else None
        value = self._context.auth.session_from_cookie(cookie)
        session = WebSocketSession(self._context, receive, send, value)
        self._sessions.add(session)
        try:
            await session.serve()
        finally:
            self._sessions.discard(session)
            if not self._sessions:
                self._all_gone.set()

    def close_invalid(self) -> None:
        """Closes the connections of those whose key or session is valid no more. What they asked
        still ends."""
        for session in self._sessions:
            if not session.is_valid:
                session.close(CLOSE_POLICY, "unauthorized")

    def close_user(self, user: UserId, reason: str) -> None:
        """Closes every connection of a user whose rights have changed."""
        for session in self._sessions:
            if session.user == user:
                session.close(CLOSE_POLICY, reason)

    async def shutdown(self, timeout_s: float) -> None:
        """Closes every session with 1001, after what its runs still have to say; waits at most
        `timeout_s` for the clients to take it. Later connections are refused. Idempotent."""
        self._is_closed = True
        self._all_gone.clear()
        for session in self._sessions:
            session.close(CLOSE_GOING_AWAY, "the server is shutting down")
        if self._sessions:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._all_gone.wait()
            except TimeoutError:
                return

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        if self._is_closed:
            return CLOSE_GOING_AWAY, "the server is shutting down"
        try:
            self._context.origins.check(scope, is_api=True)
        except ForbiddenError:
            return CLOSE_POLICY, "origin not allowed"
        if len(self._sessions) >= self._context.limits.max_connections:
            return CLOSE_OVERLOAD, TOO_MANY_CONNECTIONS
        return None
