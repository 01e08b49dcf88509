"""Foreign pages, foreign names, and pages that were let in on purpose."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from server.service.auth import Auth
from server.service.errors import ForbiddenError
from server.service.http import Scope
from server.service.origin import OriginPolicy, is_loopback, is_same_origin
from tests.server.service.harness import MODEL, SECRET, Server, serving
from tests.server.service.socket_events import close_code

FRIEND = "https://notes.example.org"
EVIL = "http://evil.example"
LISTED = OriginPolicy.of(origins=[FRIEND], is_local=True)
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("origin", "host", "is_allowed"),
    [
        (None, "a", True),
        ("http://a:80", "a:80", True),
        ("https://A.example", "a.example", True),
        ("http://a", "a:80", False),
        ("http://a@b", "a", False),
        ("null", "null", False),
        ("http://[", "a", False),
        ("ws://a", "a", False),
        ("http://a", None, False),
    ],
)
def test_origins(origin: str | None, host: str | None, is_allowed: bool) -> None:
    assert is_same_origin(origin, host) is is_allowed


def test_loopback_names() -> None:
    for name in ("localhost", "LOCALHOST", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]", "::1"):
        assert is_loopback(name)
    for name in ("", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0", "10.0.0.1"):
        assert not is_loopback(name)


def _scope(method: str = "GET", **headers: str) -> Scope:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "headers": named}


@pytest.mark.parametrize(
    ("policy", "host", "is_known"),
    [
        (OriginPolicy(is_local=True), "localhost:8000", True),
        (OriginPolicy(is_local=True), "[::1]:8000", True),
        (OriginPolicy(is_local=True), "evil.example", False),
        (OriginPolicy(is_local=True), "evil.example:8000", False),
        (OriginPolicy(is_local=True), "192.0.2.1", False),
        (OriginPolicy(is_local=True), "", False),
        (OriginPolicy(is_local=True), "localhost evil.example", False),
        (OriginPolicy.of(hosts=["Lectern.example"], is_local=True), "lectern.EXAMPLE:8443", True),
        (OriginPolicy.of(hosts=["a.example:80"], is_local=True), "a.example:80", True),
        (OriginPolicy.of(hosts=["a.example:80"], is_local=True), "a.example:81", False),
        (OriginPolicy(is_local=False), "anything.example", True),
        (OriginPolicy.of(hosts=["a.example"], is_local=False), "b.example", False),
        (OriginPolicy.of(hosts=["a.example"], is_local=False), "192.0.2.1:80", True),
    ],
)
def test_names_of_the_server(policy: OriginPolicy, host: str, is_known: bool) -> None:
    """A foreign name that leads here makes a foreign page the same origin."""
    scope = _scope("GET", host=host, origin=f"http://{host}")
    if is_known:
        policy.check(scope, is_api=True)
    else:
        with pytest.raises(ForbiddenError, match="--allowed-hosts"):
            policy.check(scope, is_api=True)


def test_a_proxy_may_change_the_host() -> None:
    policy = OriginPolicy.of(hosts=["lectern.example", "other.example:8443"], is_local=True)
    for origin, is_own in (
        ("https://lectern.example", True),
        ("https://other.example:8443", True),
        ("https://lectern.example:9999", False),
        ("https://other.example", False),
        ("https://evil.example", False),
    ):
        assert policy.is_own(_scope("POST", host="127.0.0.1:8000", origin=origin)) is is_own


def test_a_program_may_leave_the_name_out() -> None:
    OriginPolicy(is_local=True).check(_scope("POST"), is_api=True)


@pytest.mark.parametrize("hosts", [["a b"], ["http://a"], ["a/b"], ["a:b"]])
def test_what_is_no_name_is_refused(hosts: list[str]) -> None:
    with pytest.raises(ValueError, match="no host's name"):
        OriginPolicy.of(hosts=hosts, is_local=True)


@pytest.mark.parametrize("origin", ["a.example", "https://", "https://a/", "https://a b", "null"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match="no origin"):
        OriginPolicy.of(origins=[origin], is_local=True)


@pytest.mark.anyio
@pytest.mark.one_loop
class TestServed:
    """The same through a server, as a browser would ask."""

    @pytest.mark.parametrize("origin", [EVIL, "null", "http://127.0.0.1:1", "https://localhost"])
    @pytest.mark.parametrize("content_type", ["application/json", "text/plain;charset=UTF-8"])
    async def test_a_foreign_page_costs_nothing(self, origin: str, content_type: str) -> None:
        """A browser sends such a POST without asking first (`no-cors`); the model worked for it."""
        async with serving(origins=LISTED) as server:
            for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize"):
                reply = await server.http.post(
                    path,
                    content=json.dumps(BODY),
                    headers={"Origin": origin, "Content-Type": content_type},
                )
                assert reply.status_code == 403
                assert reply.json()["error"]["type"] == "permission_error"
                assert not _cors(reply)
                assert reply.headers["x-request-id"]
            assert server.engine.stats.num_steps == 0
            preflight = await _preflight(server, origin)
            assert preflight.status_code == 403
            assert not _cors(preflight)

    async def test_the_page_and_programs_are_welcome(self) -> None:
        async with serving(origins=LISTED) as server:
            for headers in ({}, {"Origin": server.base_url}):
                reply = await server.http.post("/v1/chat/completions", json=BODY, headers=headers)
                assert reply.status_code == 200
                assert not _cors(reply)
                assert reply.headers["vary"] == "origin", "a cache must tell them apart"

    async def test_without_a_list_there_is_no_cors(self) -> None:
        async with serving(origins=OriginPolicy(is_local=True)) as server:
            reply = await server.http.get("/v1/models", headers={"Origin": EVIL})
            assert reply.status_code == 200, "its answer is kept from the page by the browser"
            assert not _cors(reply)
            assert "vary" not in reply.headers

    async def test_a_listed_page_may_use_the_api(self) -> None:
        async with serving(auth=Auth(SECRET, ["sk"]), origins=LISTED) as server:
            preflight = await _preflight(server, FRIEND)
            assert preflight.status_code == 200
            assert preflight.headers["access-control-allow-origin"] == FRIEND
            assert "POST" in preflight.headers["access-control-allow-methods"]
            allowed = preflight.headers["access-control-allow-headers"]
            assert allowed == "authorization, content-type, x-stainless-os"
            assert "access-control-allow-credentials" not in preflight.headers
            for key, status in (("sk", 200), ("wrong", 401)):
                reply = await server.http.post(
                    "/v1/chat/completions",
                    json=BODY,
                    headers={"Origin": FRIEND, "Authorization": f"Bearer {key}"},
                )
                assert reply.status_code == status
                assert reply.headers["access-control-allow-origin"] == FRIEND
                assert "x-request-id" in reply.headers["access-control-expose-headers"]
            stream = await server.http.post(
                "/v1/chat/completions",
                json={**BODY, "stream": True},
                headers={"Origin": FRIEND, "Authorization": "Bearer sk"},
            )
            assert stream.headers["access-control-allow-origin"] == FRIEND
            assert (await _preflight(server, EVIL)).status_code == 403

    async def test_all_pages_by_a_star(self) -> None:
        async with serving(origins=OriginPolicy.of(origins=["*"], is_local=True)) as server:
            for origin in (EVIL, "null"):
                preflight = await _preflight(server, origin)
                assert preflight.headers["access-control-allow-origin"] == "*"
                reply = await server.http.post(
                    "/v1/chat/completions", json=BODY, headers={"Origin": origin}
                )
                assert reply.status_code == 200
                assert reply.headers["access-control-allow-origin"] == "*"
                assert "access-control-allow-credentials" not in reply.headers

    async def test_header_names_of_a_preflight_are_only_names(self) -> None:
        async with serving(origins=LISTED) as server:
            reply = await _preflight(server, FRIEND, "x: y")
            assert reply.status_code == 200
            assert "access-control-allow-headers" not in reply.headers

    async def test_a_led_browser_sees_nothing(self) -> None:
        """DNS rebinding: page and request are of one origin, under a name that is not ours."""
        async with serving(origins=LISTED) as server:
            led = {"Host": "evil.example:8000", "Origin": "http://evil.example:8000"}
            for method, path in (
                ("GET", "/v1/models"),
                ("POST", "/v1/chat/completions"),
                ("GET", "/metrics"),
                ("GET", "/"),
                ("DELETE", "/api/conversations/x"),
                ("OPTIONS", "/v1/models"),
            ):
                reply = await server.http.request(method, path, headers=led)
                assert reply.status_code == 403, path

    async def test_sockets(self) -> None:
        """A listed page is a program: the reader's cookie is not for it."""
        auth = Auth(SECRET, ["sk"])
        _, session = auth.new_session()
        cookie = f"lectern_session={session}"
        async with serving(auth=auth, origins=LISTED) as server:
            async with server.socket(Origin=EVIL, Cookie=cookie) as socket:
                assert await close_code(socket) == 1008
            async with server.socket(Origin=server.base_url, Cookie=cookie) as socket:
                await socket.hello()
            async with server.socket(Origin=FRIEND, Cookie=cookie) as socket:
                await socket.send("hello")
                assert (await socket.receive())["code"] == "unauthorized"
            async with server.socket(Origin=FRIEND, Cookie=cookie) as socket:
                await socket.hello(token="sk")

    async def test_a_socket_under_a_foreign_name(self) -> None:
        async with serving(origins=LISTED) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(
                b"GET /ws/v1 HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n"
                b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            await reader.readuntil(b"\r\n\r\n")
            frame = await reader.readexactly(4)
            assert (frame[0] & 15, int.from_bytes(frame[2:4], "big")) == (8, 1008)
            writer.close()


async def _preflight(
    server: Server, origin: str, names: str = "authorization, content-type, x-stainless-os"
) -> httpx.Response:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": names,
    }
    return await server.http.options("/v1/chat/completions", headers=headers)


def _cors(reply: Any) -> list[str]:
    return [name for name in reply.headers if name.startswith("access-control-")]
