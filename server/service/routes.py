"""The service's addresses: one dictionary look-up in front of the rest of the site.

| method and path | answer |
| --- | --- |
| POST /v1/chat/completions, /v1/completions | OpenAI's API, streamed or whole |
| GET /v1/models, /v1/models/{id} | the one served model |
| GET /v1/runs/{run}/events | a run's events as SSE; `after_seq` or `Last-Event-ID` resumes |
| GET /health, /ready, /metrics | alive; able to answer; Prometheus |
| WebSocket /ws/v1 | see `ws` |
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from urllib.parse import parse_qs, unquote

import msgspec

from engine.api import EngineState
from server.service.auth import UserId
from server.service.errors import (
    MethodNotAllowedError,
    ModelNotFoundError,
    NotFoundError,
    ResumeGoneError,
    ServiceError,
    UnauthorizedError,
)
from server.service.http import (
    ASGIApp,
    ClientGoneError,
    Receive,
    Scope,
    Send,
    SlowClientError,
    abort_connection,
    request_id,
    send_error,
    send_reply,
    text_header,
    watch_client,
)
from server.service.metrics import CONTENT_TYPE
from server.service.runs import Run
from server.service.service import Service
from server.service.sse import event_stream, run_frame

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


def create_routes(service: Service, fallback: ASGIApp | None = None) -> ASGIApp:
    """The ASGI application: the service's routes, and `fallback` for everything else (pages,
    the application's own API, lifespan). Without one, everything else is 404."""
    return ServiceRoutes(service, fallback or _nothing_else)


class ServiceRoutes:
    """Plain ASGI, no middleware. Owned by the event loop's thread."""

    def __init__(self, service: Service, fallback: ASGIApp) -> None:
        self._service = service
        self._fallback = fallback
        self._created = int(time.time())
        self._routes: dict[str, tuple[str, Handler]] = {
            "/v1/chat/completions": ("POST", service.completions.chat),
            "/v1/completions": ("POST", service.completions.text),
            "/v1/models": ("GET", self._models),
            "/health": ("GET", self._health),
            "/ready": ("GET", self._ready),
            "/metrics": ("GET", self._metrics),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and scope["path"] == "/ws/v1":
            await self._service.sockets(scope, receive, send)
        elif scope["type"] == "http" and (handler := self._find(scope)) is not None:
            await handler(scope, receive, send)
        else:
            await self._fallback(scope, receive, send)

    def _find(self, scope: Scope) -> Handler | None:
        path: str = scope["path"]
        found = self._routes.get(path)
        if found is None and path.startswith("/v1/"):
            found = ("GET", self._v1_rest)
        if found is None:
            return None
        method, handler = found
        is_allowed = scope["method"] == method or (method, scope["method"]) == ("GET", "HEAD")
        return handler if is_allowed else self._wrong_method(method)

    @staticmethod
    def _wrong_method(allowed: str) -> Handler:
        async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
            error = MethodNotAllowedError(f"{scope['path']} takes {allowed} only.")
            await send_error(send, error, [(b"allow", allowed.encode())])

        return refuse

    async def _v1_rest(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts = scope["path"].removeprefix("/v1/").split("/")
        match parts:
            case ["models", *names] if names:
                await self._model(unquote("/".join(names)), scope, send)
            case ["runs", run_id, "events"]:
                await self._run_events(run_id, scope, receive, send)
            case _:
                await send_error(send, NotFoundError(f"There is no {scope['path'][:200]}."))

    def _model_json(self) -> dict[str, object]:
        model = self._service.generation.model
        return {
            "id": model.name,
            "object": "model",
            "created": self._created,
            "owned_by": "lectern",
            "max_model_len": model.window,
        }

    async def _models(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._user(scope)
            self._service.admission.check()
        except ServiceError as error:
            await send_error(send, error)
            return
        await self._json(send, {"object": "list", "data": [self._model_json()]})

    async def _model(self, name: str, scope: Scope, send: Send) -> None:
        try:
            self._user(scope)
            self._service.admission.check()
            served = self._service.generation.model.name
            if name != served:
                raise ModelNotFoundError(name, served)
        except ServiceError as error:
            await send_error(send, error)
            return
        await self._json(send, self._model_json())

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_alive = self._service.engine.state is not EngineState.DEAD
        await self._json(
            send,
            {"status": "ok" if is_alive else "engine failed"},
            status=200 if is_alive else 503,
        )

    async def _ready(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_ready = self._service.admission.is_ready
        await self._json(
            send,
            {"ready": is_ready, "state": self._service.admission.state},
            status=200 if is_ready else 503,
        )

    async def _metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_reply(send, self._service.metrics.render(), content_type=CONTENT_TYPE)

    async def _run_events(self, run_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            run = self._own_run(run_id, scope)
        except ServiceError as error:
            await send_error(send, error)
            return
        try:
            async with (
                watch_client(receive),
                event_stream(
                    send, self._service.limits, [(b"x-request-id", request_id(scope))]
                ) as writer,
                aclosing(run.events(_after_seq(scope))) as events,
            ):
                async for event in events:
                    await writer.write(run_frame(event))
                await writer.end()
        except (ClientGoneError, ConnectionError):
            return
        except SlowClientError:
            abort_connection(send)

    def _own_run(self, run_id: str, scope: Scope) -> Run:
        auth = self._service.auth
        user = auth.user_from_cookie(text_header(scope, b"cookie")) or self._session_user(scope)
        run = self._service.runs.get(run_id)
        if run is None or run.owner != user:
            raise ResumeGoneError("This run is not known (any more).")
        return run

    def _session_user(self, scope: Scope) -> UserId | None:
        """A program may bear its WebSocket session in place of a key."""
        scheme, _, value = (text_header(scope, b"authorization") or "").partition(" ")
        session = self._service.auth.user_from_session(value.strip())
        return session if scheme.lower() == "bearer" and session else self._user(scope)

    def _user(self, scope: Scope) -> UserId:
        user = self._service.auth.user_from_bearer(text_header(scope, b"authorization"))
        if user is None:
            raise UnauthorizedError("A valid API key is required.")
        return user

    @staticmethod
    async def _json(send: Send, value: object, status: int = 200) -> None:
        await send_reply(send, msgspec.json.encode(value), status=status)


def _after_seq(scope: Scope) -> int:
    query = parse_qs(scope["query_string"].decode("latin-1"))
    given = text_header(scope, b"last-event-id") or query.get("after_seq", ["0"])[0]
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else 0


async def _nothing_else(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await send_error(send, NotFoundError(f"There is no {scope['path'][:200]}."))
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000})
