"""The secret on disk and the cookie on a response."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from server.app.sessions import Sessions, load_secret
from server.service.auth import Auth
from server.service.errors import UnauthorizedError


def request(cookie: str | None = None) -> Request:
    headers = [(b"host", b"127.0.0.1")]
    if cookie is not None:
        headers.append((b"cookie", cookie.encode()))
    return Request(
        {
            "type": "http",
            "scheme": "http",
            "method": "GET",
            "path": "/",
            "query_string": b"",
            "headers": headers,
        }
    )


def test_the_secret_is_made_once_and_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: load_secret(None, folder), range(16)))
    assert len(made) == 1
    assert len(made.pop()) >= 32
    assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == ["secret"]


def test_a_configured_secret_needs_no_file(tmp_path: Path) -> None:
    assert load_secret("a configured secret", tmp_path) == b"a configured secret"
    assert list(tmp_path.iterdir()) == []


def test_a_page_starts_a_session_once() -> None:
    sessions = Sessions(Auth(b"0123456789abcdef"))
    response = Response()
    sessions.start(request(), response)
    cookie = response.headers["set-cookie"].partition(";")[0]
    user = sessions.user(request(cookie))
    again = Response()
    sessions.start(request(cookie), again)
    assert "set-cookie" not in again.headers
    assert sessions.user(request(cookie)) == user


@pytest.mark.parametrize("cookie", [None, "lectern_session=somebody.else"])
def test_without_a_valid_session_there_is_no_user(cookie: str | None) -> None:
    with pytest.raises(UnauthorizedError):
        Sessions(Auth(b"0123456789abcdef")).user(request(cookie))


@pytest.mark.parametrize(("way", "is_secure"), [("https", True), ("http", False), ("x", False)])
def test_behind_a_proxy_with_tls_the_cookie_is_secure(way: str, is_secure: bool) -> None:
    asked, response = request(), Response()
    asked.scope["headers"].append((b"x-forwarded-proto", way.encode()))
    Sessions(Auth(b"0123456789abcdef")).start(asked, response)
    assert ("; Secure" in response.headers["set-cookie"]) is is_secure


def test_where_people_log_in_a_page_starts_no_session() -> None:
    response = Response()
    with pytest.raises(UnauthorizedError):
        Sessions(Auth(b"0123456789abcdef", asks_for_login=True)).start(request(), response)
    assert "set-cookie" not in response.headers


def test_a_cookie_can_be_dropped() -> None:
    response = Response()
    Sessions(Auth(b"0123456789abcdef")).put(request(), response, "", max_age_s=0)
    assert "; Max-Age=0;" in response.headers["set-cookie"]
