"""Sessions and keys: only what was made here is believed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.service.auth import ASK, COOKIE_NAME, Access, Auth, Caller, UserId, is_token
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


@pytest.mark.parametrize("begins", ["s_", "key-", "-", "_", "."])
def test_a_guest_s_session_may_begin_as_any_other_value(begins: str) -> None:
    """Their ids are random: one in some thousands begins as an account's token does."""
    user = UserId(f"{begins}JtnuDtT-5cIg-22OZ62w")
    value = AUTH.sign(user)
    expected = None if begins == "." else user
    assert AUTH.user_from_session(value) == expected
    assert AUTH.user_from_cookie(f"{COOKIE_NAME}={value}") == expected
    assert not is_token(value)


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


class Book:
    """A session book that is written by hand: token → caller."""

    def __init__(self) -> None:
        self.callers: dict[str, Caller] = {}

    def find(self, token: str) -> Caller | None:
        return self.callers.get(token)

    def caller(self, user: UserId) -> Caller | None:
        return next((one for one in self.callers.values() if one.user == user), None)


TEACHER, STUDENT = UserId("a" * 26), UserId("b" * 26)


def test_an_account_s_session_lasts_as_long_as_its_book_says() -> None:
    book = Book()
    auth = Auth(b"0123456789abcdef", sessions=book)
    book.callers = {"s_one": Caller(TEACHER), "s_two": Caller(TEACHER)}
    assert auth.user_from_session("s_one") == TEACHER
    assert auth.user_from_cookie(f"{COOKIE_NAME}=s_two") == TEACHER
    del book.callers["s_one"]
    assert auth.user_from_session("s_one") is None
    assert not auth.is_valid(TEACHER, "s_one"), "this browser is out"
    assert auth.is_valid(TEACHER, "s_two")
    assert auth.is_valid(TEACHER)
    book.callers.clear()
    assert not auth.is_valid(TEACHER)


def test_an_account_is_entered_by_its_tokens_alone() -> None:
    """Whoever can make a guest's cookie (an old secret, another server's) can be no account."""
    book = Book()
    book.callers["s_one"] = Caller(TEACHER)
    auth = Auth(b"0123456789abcdef", sessions=book)
    assert auth.user_from_session(auth.sign(TEACHER)) is None
    assert Auth(b"0123456789abcdef").user_from_session("s_one") is None


def test_where_people_log_in_nobody_is_a_stranger() -> None:
    book = Book()
    book.callers["s_one"] = Caller(STUDENT, frozenset())
    auth = Auth(b"0123456789abcdef", asks_for_login=True, sessions=book)
    user, value = auth.new_session()
    assert auth.user_from_session(value) is None
    assert not auth.is_valid(user)
    assert auth.is_valid(STUDENT)
    assert not auth.takes_strangers
    assert AUTH.takes_strangers


def test_what_users_may_ask_of_the_api(tmp_path: Path) -> None:
    file, store = _store(tmp_path)
    book = Book()
    book.callers["s_1"] = Caller(TEACHER, frozenset({Access.CHAT}))
    book.callers["s_2"] = Caller(STUDENT, frozenset())
    auth = Auth(b"0123456789abcdef", store, sessions=book)
    guest, _ = auth.new_session()
    for user in (guest, TEACHER, STUDENT):
        assert Access.CHAT in auth.access_of(user), "where no keys are needed, everybody"
    key = file.create("reader", [Access.CHAT])
    store.refresh()
    holder = auth.user_from_key(key)
    assert holder is not None
    assert auth.access_of(holder) == auth.access_of(TEACHER) == {Access.CHAT}
    assert auth.access_of(guest) == auth.access_of(STUDENT) == frozenset()
    file.revoke("reader")
    store.refresh()
    assert auth.access_of(holder) == frozenset()
    assert not auth.is_valid(holder)


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
