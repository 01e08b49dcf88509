"""`GET /v1/runs/{run}/events`: a run's events as server-sent events.

`after_seq` in the query or `Last-Event-ID` resumes after an event; where nothing comes any more,
the reply is 204.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs

from server.service.auth import Auth, UserId
from server.service.errors import ResumeGoneError
from server.service.exchange import Exchange
from server.service.http import Scope, text_header, watch_client
from server.service.limits import ServiceLimits
from server.service.run import MAX_WRITE_BYTES, Run, RunReader
from server.service.runs import RunRegistry
from server.service.sse import run_frame, send_events

PREFIX = "/v1/runs/"
SUFFIX = "/events"


class RunEventRoutes:
    """Owned by the event loop's thread."""

    def __init__(self, runs: RunRegistry, auth: Auth, limits: ServiceLimits) -> None:
        self._runs = runs
        self._auth = auth
        self._limits = limits

    async def events(self, exchange: Exchange) -> None:
        run, after_seq = self._own_run(exchange), _after_seq(exchange.scope)
        if run.is_finished and after_seq >= run.last_seq:
            # A browser's EventSource comes back after every end; only this makes it stop.
            exchange.status = 204
            start = {"type": "http.response.start", "status": 204, "headers": exchange.headers}
            await exchange.send(start)
            await exchange.send({"type": "http.response.body", "body": b""})
            return
        source = _RunFrames(run, after_seq)
        async with watch_client(exchange.receive):
            await send_events(exchange, source, self._limits)

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


class _RunFrames:
    """A run's events as frames: an `sse.EventSource`."""

    def __init__(self, run: Run, after_seq: int) -> None:
        self._run = run
        self._after_seq = after_seq
        self._reader: RunReader | None = None
        self._on_ready: Callable[[], None] | None = None

    @property
    def is_done(self) -> bool:
        return self._reader is not None and self._reader.is_done

    def take(self) -> bytes:
        reader, on_ready = self._reader, self._on_ready
        if reader is None or on_ready is None:
            return b""
        frames = b"".join([run_frame(event) for event in reader.take(MAX_WRITE_BYTES)])
        if reader.has_more:
            on_ready()
        return frames

    def follow(self, on_ready: Callable[[], None]) -> None:
        self._on_ready = on_ready
        self._reader = self._run.follow(self._after_seq, on_ready)
        on_ready()

    def unfollow(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _after_seq(scope: Scope) -> int:
    query = parse_qs(scope["query_string"].decode("latin-1"))
    given = text_header(scope, b"last-event-id") or query.get("after_seq", ["0"])[0]
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else 0
