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

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from server.service import model_list, run_events
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
    Receive,
    Scope,
    Send,
    SlowClientError,
    abort_connection,
    send_error,
    text_header,
)
from server.service.service import Service

log = logging.getLogger(__name__)

Handler = Callable[[Exchange], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Route:
    """`pattern` is the address as the log and the metrics name it."""

    pattern: str
    method: str
    handler: Handler


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
                Route("/v1/models", "GET", service.models.list),
                Route("/health", "GET", service.health.health),
                Route("/ready", "GET", service.health.ready),
                Route("/metrics", "GET", service.health.metrics),
            )
        }
        self._model = Route("/v1/models/{id}", "GET", service.models.one)
        self._run_events = Route("/v1/runs/{run}/events", "GET", service.run_events.events)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and scope["path"] == "/ws/v1":
            await self._service.sockets(scope, receive, send)
        elif scope["type"] == "http" and (route := self._find(scope["path"])) is not None:
            await self._serve(route, scope, receive, send)
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
        exchange = Exchange(route.pattern, scope, receive, send)
        exchange.caller = self._service.auth.caller_from_bearer(
            text_header(scope, b"authorization")
        )
        try:
            _check_method(exchange, route)
            await route.handler(exchange)
        except (ClientGoneError, ConnectionError):
            return
        except SlowClientError:
            abort_connection(send)
        except ServiceError as error:
            await exchange.fail(error)
        except Exception as error:
            log.exception("a request failed")
            await exchange.fail(from_unknown(error))
        finally:
            self._service.exchange_ended(exchange)


def _check_method(exchange: Exchange, route: Route) -> None:
    allowed = (route.method, "HEAD") if route.method == "GET" else (route.method,)
    if route.method != "*" and exchange.method not in allowed:
        exchange.headers.append((b"allow", ", ".join(allowed).encode()))
        raise MethodNotAllowedError(f"{exchange.path} takes {route.method} only.")


async def _unknown(exchange: Exchange) -> None:
    raise NotFoundError(f"There is no {exchange.path[:200]}.")


_UNKNOWN = Route("/v1/{unknown}", "*", _unknown)


async def _nothing_else(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await send_error(send, NotFoundError(f"There is no {scope['path'][:200]}."))
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000})
