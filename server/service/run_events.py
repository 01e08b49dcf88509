"""`GET /v1/runs/{run}/events`: a run's events as server-sent events.

`after_seq` in the query or `Last-Event-ID` resumes after an event.
"""

from __future__ import annotations

from contextlib import aclosing
from urllib.parse import parse_qs

from server.service.auth import Auth, UserId
from server.service.errors import ResumeGoneError
from server.service.exchange import Exchange
from server.service.http import Scope, text_header, watch_client
from server.service.limits import ServiceLimits
from server.service.runs import Run, RunRegistry
from server.service.sse import event_stream, run_frame

PREFIX = "/v1/runs/"
SUFFIX = "/events"


class RunEventRoutes:
    """Owned by the event loop's thread."""

    def __init__(self, runs: RunRegistry, auth: Auth, limits: ServiceLimits) -> None:
        self._runs = runs
        self._auth = auth
        self._limits = limits

    async def events(self, exchange: Exchange) -> None:
        run = self._own_run(exchange)
        exchange.status = 200
        async with (
            watch_client(exchange.receive),
            event_stream(exchange.send, self._limits, exchange.headers) as writer,
            aclosing(run.events(_after_seq(exchange.scope))) as events,
        ):
            async for event in events:
                await writer.write(run_frame(event))
            await writer.end()

    def _own_run(self, exchange: Exchange) -> Run:
        run_id = exchange.path.removeprefix(PREFIX).removesuffix(SUFFIX)
        cookie = text_header(exchange.scope, b"cookie")
        user = self._auth.user_from_cookie(cookie) or self._session_user(exchange)
        run = self._runs.get(run_id)
        if run is None or run.owner != user:
            raise ResumeGoneError("This run is not known (any more).")
        return run

    def _session_user(self, exchange: Exchange) -> UserId:
        """A program may bear its WebSocket session in place of a key."""
        given = text_header(exchange.scope, b"authorization") or ""
        scheme, _, value = given.partition(" ")
        session = self._auth.user_from_session(value.strip())
        return session if scheme.lower() == "bearer" and session else exchange.caller.user


def _after_seq(scope: Scope) -> int:
    query = parse_qs(scope["query_string"].decode("latin-1"))
    given = text_header(scope, b"last-event-id") or query.get("after_seq", ["0"])[0]
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else 0
