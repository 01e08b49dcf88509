"""Clients that have sent a part of their request only, on the pages' own routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from server.app.own_data import OwnData
from server.service.auth import COOKIE_NAME, UserId
from tests.server.app.site import Site, open_site
from tests.server.service.harness import PATIENCE_S, eventually, hosted
from tests.server.service.test_half_body import reply

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

UPLOAD = (
    "/api/courses/demo/materials",
    "multipart/form-data; boundary=b",
    '--b\r\nContent-Disposition: form-data; name="file"; filename="a.md"\r\n\r\n# A',
)
LOGIN = ("/api/login", "application/json", '{"login": "a')
WAYS = [pytest.param(UPLOAD, id="upload"), pytest.param(LOGIN, id="json")]
Way = tuple[str, str, str]


@asynccontextmanager
async def half_sent(site: Site, way: Way) -> AsyncIterator[asyncio.StreamReader]:
    """The reader of a connection on which half of a body was sent, once the server waits for
    the rest of it."""
    path, kind, body = way
    teacher = await site.account("teacher", "Tara", "demo")
    async with hosted(site.app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
            f"Cookie: {COOKIE_NAME}={site.session(teacher)}\r\n"
            f"Content-Length: {len(body) + 100}\r\n\r\n{body}"
        )
        writer.write(head.encode())
        try:
            yield reader
        finally:
            writer.close()


@pytest.mark.parametrize("way", WAYS)
async def test_an_end_of_the_server_does_not_wait_for_it(way: Way, tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, half_sent(site, way) as reader:
        bodies = site.app.service.admission.bodies
        await eventually(lambda: bodies.num_awaited == 1)
        site.app.refuse_new_work()
        status, data = await reply(reader)
        assert status == b"HTTP/1.1 503 Service Unavailable"
        assert b"shutting_down" in data
        assert b"connection: close" in data
        assert bodies.num_awaited == 0


@pytest.mark.parametrize("way", WAYS)
async def test_it_is_told_when_its_time_is_over(way: Way, tmp_path: Path) -> None:
    async with (
        open_site(tmp_path, body_timeout_s=0.2) as site,
        half_sent(site, way) as reader,
    ):
        status, data = await reply(reader)
        assert status == b"HTTP/1.1 408 Request Timeout"
        assert b"connection: close" in data


async def test_a_reply_that_has_begun_is_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    time_s = 0.1

    async def lines(_own: OwnData, _user: UserId) -> AsyncIterator[bytes]:
        yield b"first\n"
        await asyncio.sleep(3 * time_s)
        yield b"last\n"

    monkeypatch.setattr(OwnData, "lines", lines)
    async with open_site(tmp_path, body_timeout_s=time_s) as site, hosted(site.app) as port:
        teacher = await site.account("teacher", "Tara", "demo")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            "GET /api/me/export HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n"
            f"Cookie: {COOKIE_NAME}={site.session(teacher)}\r\n\r\n"
        )
        writer.write(head.encode())
        async with asyncio.timeout(PATIENCE_S):
            data = await reader.readuntil(b"last\n")
        writer.close()
    assert data.startswith(b"HTTP/1.1 200")
    assert b"first\n" in data
    assert "Traceback" not in caplog.text


async def test_what_has_arrived_is_taken_to_the_end(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        site.app.refuse_new_work()
        async with site.client() as client:
            told = await client.post(
                "/api/login", json={"login": "nobody", "password": "a wrong password"}
            )
        assert told.status_code == 401, told.text
