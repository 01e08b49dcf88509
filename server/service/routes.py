"""The service's addresses: one dictionary look-up in front of the rest of the site.

| method and path | answer |
| --- | --- |
| POST /v1/chat/completions, /v1/completions | OpenAI's API, streamed or whole |
| POST /v1/responses | the same for one answer, in OpenAI's newer form |
| POST /tokenize, /detokenize | a prompt as the model reads it, and back |
| GET /v1/models, /v1/models/{id} | the one served model |
| GET /v1/runs/{run}/events | a run's events as SSE; `after_seq` or `Last-Event-ID` resumes |
| GET /health, /ready, /metrics | alive; able to answer; Prometheus |
| GET /openapi.json | this table for programs |
| WebSocket /ws/v1 | see `ws` |
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from engine.api import FinishType
from server.service import model_list, run_events
from server.service.auth import ASK, Access
from server.service.errors import (
    MethodNotAllowedError,
    NotFoundError,
    ServiceError,
    from_unknown,
)
from server.service.exchange import Exchange
from server.service.http import (
    ASGIApp,
    ClientGoneError,
    Message,
    Receive,
    Scope,
    Send,
    SlowClientError,
    abort_connection,
    send_error,
    sent_at_once,
    text_header,
)
from server.service.service import Service

log = logging.getLogger(__name__)

Handler = Callable[[Exchange], Awaitable[None]]
OPEN: frozenset[Access] = frozenset()
METRICS = frozenset({Access.METRICS})


@dataclass(frozen=True, slots=True)
class Route:
    """`pattern` is the address as the log and the metrics name it; `access`: any of it lets a key
    in, where keys are needed. Empty: everybody; None: the handler knows who may."""

    pattern: str
    method: str
    handler: Handler
    access: frozenset[Access] | None = ASK


def create_routes(service: Service, fallback: ASGIApp | None = None) -> ASGIApp:
    """The ASGI application: the service's routes, and `fallback` for everything else (pages,
    the application's own API, lifespan). Without one, everything else is 404."""
    return ServiceRoutes(service, fallback or _nothing_else)


class ServiceRoutes:
    """Plain ASGI, no middleware. Owned by the event loop's thread."""

    def __init__(self, service: Service, fallback: ASGIApp) -> None:
        self._service = service
        self._fallback = fallback
        self._routes = {
            route.pattern: route
            for route in (
                Route("/v1/chat/completions", "POST", service.completions.chat),
                Route("/v1/completions", "POST", service.completions.text),
                Route("/v1/responses", "POST", service.responses.create),
                Route("/tokenize", "POST", service.tokenize.tokenize),
                Route("/detokenize", "POST", service.tokenize.detokenize),
                Route("/v1/models", "GET", service.models.list),
                Route("/health", "GET", service.health.health, OPEN),
                Route("/ready", "GET", service.health.ready, OPEN),
                Route("/metrics", "GET", service.health.metrics, METRICS),
                Route("/openapi.json", "GET", service.openapi.document, OPEN),
            )
        }
        self._model = Route("/v1/models/{id}", "GET", service.models.one)
        self._run_events = Route("/v1/runs/{run}/events", "GET", service.run_events.events, None)

    @property
    def routes(self) -> Sequence[Route]:
        """All of them: what the OpenAPI document must describe."""
        return [*self._routes.values(), self._model, self._run_events]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and scope["path"] == "/ws/v1":
            await self._service.sockets(scope, receive, send)
        elif scope["type"] == "http" and (route := self._find(scope["path"])) is not None:
            await self._serve(route, scope, receive, send)
        elif scope["type"] == "http":
            await self._serve_site(scope, receive, send)
        else:
            await self._fallback(scope, receive, send)

    def _find(self, path: str) -> Route | None:
        found = self._routes.get(path)
        if found is not None or not path.startswith("/v1/"):
            return found
        if path.startswith(model_list.PREFIX) and path != model_list.PREFIX:
            return self._model
        run_id = path.removeprefix(run_events.PREFIX).removesuffix(run_events.SUFFIX)
        if path == f"{run_events.PREFIX}{run_id}{run_events.SUFFIX}" and "/" not in run_id:
            return self._run_events
        return _UNKNOWN

    async def _serve(self, route: Route, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("http_version") == "1.0":
            send = sent_at_once(send)
        exchange = Exchange(route.pattern, scope, receive, send, self._service.fan_out)
        exchange.caller = self._service.auth.caller_from_bearer(
            text_header(scope, b"authorization")
        )
        try:
            if not await self._is_preflight(exchange):
                self._check(exchange, route)
                await route.handler(exchange)
        except (ClientGoneError, ConnectionError):
            exchange.detail = exchange.detail or FinishType.CLIENT_GONE.value
        except SlowClientError:
            exchange.detail = FinishType.SLOW_CLIENT.value
            abort_connection(send)
        except ServiceError as error:
            await exchange.fail(error)
        except Exception as error:
            log.exception("a request failed")
            await exchange.fail(from_unknown(error))
        finally:
            self._service.exchange_ended(exchange)

    async def _is_preflight(self, exchange: Exchange) -> bool:
        """Whether a browser asked for a listed page what that may do, and was told."""
        headers = self._service.origins.preflight(exchange.scope)
        if headers is None:
            exchange.headers += self._service.origins.headers(exchange.scope)
            return False
        self._service.origins.check_host(exchange.scope)
        exchange.headers += headers
        await exchange.reply(b"")
        return True

    def _check(self, exchange: Exchange, route: Route) -> None:
        """Whether this may be asked from there, so, and by this caller."""
        self._service.origins.check(exchange.scope, is_api=True)
        _check_method(exchange, route)
        if route.access:
            self._service.auth.check_access(exchange.caller, route.access)

    async def _serve_site(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The rest of the site, with a request id and a line in the log as everything has."""
        exchange = Exchange(_UNKNOWN_PAGE, scope, receive, send, self._service.fan_out)

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *exchange.headers]
            await send(message)

        try:
            self._service.origins.check(scope, is_api=False)
            await self._fallback(scope, self._service.admission.bodies.awaited(exchange), note)
        except ConnectionError:
            exchange.detail = FinishType.CLIENT_GONE.value
        except ServiceError as error:
            exchange.detail = error.code
            if exchange.status is None:
                await exchange.fail(error)
        except Exception as error:
            log.exception("a page failed")
            if exchange.status is None:
                await exchange.fail(from_unknown(error))
        finally:
            exchange.route = _pattern(scope)
            self._service.exchange_ended(exchange)


def _pattern(scope: Scope) -> str:
    """The pattern of an address that the rest of the site has served: what its router has taken
    for parameters, by their names."""
    if "endpoint" not in scope:
        return _UNKNOWN_PAGE
    path = str(scope["path"])
    for name, value in scope.get("path_params", {}).items():
        if "/" in str(value):
            path = path.removesuffix(str(value)) + f"{{{name}}}"
        else:
            path = "/".join(f"{{{name}}}" if part == value else part for part in path.split("/"))
    return path


def _check_method(exchange: Exchange, route: Route) -> None:
    allowed = (route.method, "HEAD") if route.method == "GET" else (route.method,)
    if route.method != "*" and exchange.method not in allowed:
        exchange.headers.append((b"allow", ", ".join(allowed).encode()))
        raise MethodNotAllowedError(f"{exchange.path} takes {route.method} only.")


async def _unknown(exchange: Exchange) -> None:
    raise NotFoundError(f"There is no {exchange.path[:200]}.")


_UNKNOWN = Route("/v1/{unknown}", "*", _unknown, OPEN)
_UNKNOWN_PAGE = "/{unknown}"


async def _nothing_else(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await send_error(send, NotFoundError(f"There is no {scope['path'][:200]}."))
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000})
