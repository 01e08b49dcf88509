"""Sessions and keys: only what was made here is believed."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.service.auth import ASK, COOKIE_NAME, Access, Auth, Caller, UserId
from server.service.errors import ForbiddenError
from server.service.http import Receive, Scope, Send
from server.service.key_store import KeyFile, KeyStore
from server.service.routes import OPEN, ServiceRoutes
from tests.server.service.harness import SECRET, serving

AUTH = Auth(b"0123456789abcdef")


def test_a_session_comes_back() -> None:
    user, value = AUTH.new_session()
    assert AUTH.user_from_session(value) == user
    assert AUTH.user_from_cookie(f"a=b; {COOKIE_NAME}={value}; c=d") == user
    assert AUTH.user_from_cookie(Auth.set_cookie(value).partition(";")[0]) == user
    assert Auth(b"another secret 00").user_from_session(value) is None
    assert AUTH.new_session()[0] != user


@given(st.integers(0, 70), st.characters(codec="latin-1"))
def test_a_changed_session_is_nobody_s(place: int, character: str) -> None:
    _, value = AUTH.new_session()
    changed = value[:place] + character + value[place + 1 :]
    assert AUTH.user_from_session(changed) is None or changed == value


@pytest.mark.parametrize(
    "header", [None, "", "x", f"{COOKIE_NAME}=", f"{COOKIE_NAME}=a.b", "\xff=;"]
)
def test_cookies_that_are_none(header: str | None) -> None:
    assert AUTH.user_from_cookie(header) is None


def test_cookie_flags() -> None:
    assert "HttpOnly; SameSite=Lax" in Auth.set_cookie("v")
    assert Auth.set_cookie("v", secure=True).endswith("; Secure")


def test_keys() -> None:
    auth = Auth(b"0123456789abcdef", ["one", "two"])
    assert AUTH.is_open
    assert not auth.is_open
    assert auth.user_from_bearer("Bearer one") == auth.user_from_bearer("bearer  one")
    assert auth.user_from_bearer("Bearer two") != auth.user_from_bearer("Bearer one")
    for header in (None, "", "one", "Basic one", "Bearer", "Bearer three"):
        assert auth.user_from_bearer(header) is None
        assert AUTH.user_from_bearer(header) == "anonymous"
    with pytest.raises(ValueError, match="16 bytes"):
        Auth(b"short")


def _store(tmp_path: Path) -> tuple[KeyFile, KeyStore]:
    file = KeyFile(tmp_path / "keys.json")
    return file, KeyStore(file)


def test_a_caller_has_the_name_and_the_access_of_its_key(tmp_path: Path) -> None:
    file, store = _store(tmp_path)
    auth = Auth(b"0123456789abcdef", store)
    assert auth.caller_from_bearer(None) == Caller(UserId("anonymous"))
    key = file.create("nightly", [Access.BATCH])
    store.refresh()
    caller = auth.caller_from_bearer(f"Bearer {key}")
    assert caller is not None
    assert (caller.key_name, caller.access) == ("nightly", frozenset({Access.BATCH}))
    auth.check_access(caller, ASK)
    with pytest.raises(ForbiddenError, match="nightly"):
        auth.check_access(caller, {Access.METRICS})
    assert auth.user_from_key(key) is None, "a WebSocket needs a key that may chat"
    assert key not in caller.user


def test_a_login_lasts_as_long_as_its_key(tmp_path: Path) -> None:
    file, store = _store(tmp_path)
    auth = Auth(b"0123456789abcdef", store, asks_for_login=True)
    _, before = auth.new_session()
    assert auth.user_from_session(before) is not None, "without keys everybody may come in"
    key = file.create("reader", [Access.CHAT])
    metrics = file.create("scraper", [Access.METRICS])
    store.refresh()
    assert auth.needs_login
    assert auth.user_from_session(before) is None
    value = auth.log_in(_basic(f"me:{key}"))
    assert value is not None
    user = auth.user_from_session(value)
    assert user is not None
    assert auth.is_valid(user)
    second = auth.log_in(_basic(f":{key}"))
    assert second is not None
    assert auth.user_from_session(second) != user, "two browsers are two readers"
    file.revoke("reader")
    store.refresh()
    assert auth.user_from_session(value) is None
    assert not auth.is_valid(user)
    for header in (None, "", "Basic", "Basic ===", "Basic \xff", f"Bearer {key}"):
        assert auth.log_in(header) is None
    for words in (f"me:{key}", f"me:{metrics}", "me", "me:", f"{key}:x", f"me:{key} "):
        assert auth.log_in(_basic(words)) is None


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_every_address_needs_a_key_unless_it_is_for_everybody(tmp_path: Path) -> None:
    file, store = _store(tmp_path)
    keys = {access: file.create(access.value, [access]) for access in Access}
    store.refresh()
    asked = {"/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]}}
    async with serving(auth=Auth(SECRET, store)) as server:
        routes = ServiceRoutes(server.service, _no_site)._routes.values()
        assert {route.pattern for route in routes if route.access == OPEN} == {
            "/health",
            "/ready",
            "/openapi.json",
        }
        for route in routes:
            if route.access == OPEN:
                continue
            body = asked.get(route.pattern, {})
            refused = await server.http.request(route.method, route.pattern, json=body)
            assert refused.status_code == 401, route.pattern
            assert refused.json()["error"]["code"] == "invalid_api_key"
            for access, key in keys.items():
                bearer = {"Authorization": f"Bearer {key}"}
                reply = await server.http.request(
                    route.method, route.pattern, json=body, headers=bearer
                )
                assert route.access is not None
                is_allowed = access in route.access
                assert (reply.status_code == 403) is not is_allowed, (route.pattern, access)
                assert reply.status_code != 401
        assert server.engine.stats.num_finished <= 2, "those who may have asked once"


async def _no_site(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise AssertionError("this is no address of the service")


def test_a_session_can_name_no_key_of_its_own_choice() -> None:
    auth = Auth(b"0123456789abcdef", ["one"], asks_for_login=True)
    record = auth.keys.ring.records[0]
    forged = Auth(b"another secret 00").sign(UserId(f"login-{record.id}-{'x' * 22}"))
    assert auth.user_from_session(forged) is None
    assert not auth.is_valid(UserId("x" * 22))


def _basic(words: str) -> str:
    return "Basic " + base64.b64encode(words.encode()).decode()
