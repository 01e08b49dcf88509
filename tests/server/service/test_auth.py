"""Sessions and keys: only what was made here is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.service.auth import COOKIE_NAME, Auth
from server.service.origin import is_same_origin

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
