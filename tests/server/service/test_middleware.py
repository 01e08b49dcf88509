"""The service behind wrappers of `receive` and `send`, as sites put around it: it cannot reach the
connection then, and must notice and end everything by ASGI's own words."""

from __future__ import annotations

import pytest
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from engine.api import FinishType
from server.service.limits import ServiceLimits
from tests.server.service.harness import Json, eventually, parse_sse, serving, text_of
from tests.server.service.request_books import (
    ENDLESS,
    ROUTES,
    TORRENT,
    Books,
    Bystander,
    raw_request,
    request_body,
)
from tests.server.service.wrappers import Wrapped

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


class Framework(BaseHTTPMiddleware):
    """Starlette's way, which runs the application in a task of its own."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        response.headers["x-passed"] = "yes"
        return response


BOTH = pytest.mark.parametrize("middleware", [Wrapped, Framework])


@BOTH
async def test_answers_are_the_same(middleware: type) -> None:
    """Streamed and whole, to the last event."""
    async with serving(middleware=middleware) as server:
        for n in (1, 2):
            told = await server.stream("hello", n=n)
            assert {text_of(told, index) for index in range(n)} == {"You asked: hello"}
        reply = (await server.chat("hello")).json()
        assert reply["choices"][0]["message"]["content"] == "You asked: hello"
        text = {"model": "scripted", "prompt": "hello", "stream": True}
        events = parse_sse((await server.http.post("/v1/completions", json=text)).text)
        assert "".join(event["choices"][0]["text"] for event in events) == "You asked: hello"


@BOTH
@pytest.mark.parametrize(("route", "stream"), [("chat", True), ("chat", False), ("response", True)])
async def test_a_client_that_leaves(
    middleware: type, route: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(ENDLESS, middleware=middleware) as server, Bystander(server):
        books = Books(server, monkeypatch)
        n = 1 if route == "response" else 2
        body = request_body(route, stream=stream, n=n)
        connection = await raw_request(server, ROUTES[route], body)
        await books.until_running(n)
        connection.close()
        await books.check(FinishType.CLIENT_GONE, n)


@BOTH
@pytest.mark.parametrize("stream", [True, False])
async def test_a_deadline(middleware: type, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(ENDLESS, middleware=middleware) as server, Bystander(server):
        books = Books(server, monkeypatch)
        body: Json = request_body("chat", stream=stream, n=2, timeout=0.3)
        reply = await server.http.post(ROUTES["chat"], json=body, headers={"connection": "close"})
        assert reply.text.count('"deadline"') == 2
        await books.check(FinishType.DEADLINE, 2)


@BOTH
async def test_a_client_that_does_not_read(
    middleware: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection cannot be cut from here, but it holds nothing of the engine."""
    limits = ServiceLimits(send_timeout_s=0.2)
    async with serving(TORRENT, limits=limits, middleware=middleware) as server, Bystander(server):
        books = Books(server, monkeypatch)
        connection = await raw_request(server, ROUTES["chat"], request_body("chat", stream=True))
        await eventually(lambda: len(books.terminals) == 1)
        connection.close()
        await books.check(FinishType.SLOW_CLIENT, 1)


@BOTH
async def test_a_websocket_passes(middleware: type) -> None:
    async with serving(middleware=middleware) as server:
        async with server.socket() as socket:
            await socket.hello()
            await socket.ask("hello")
            events = await socket.answer()
        assert "".join(e["text"] for e in events if e["type"] == "delta") == "You asked: hello"
