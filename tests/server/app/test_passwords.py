"""Passwords are kept as argon2id, checked in threads, a few at once."""

from __future__ import annotations

import asyncio
import threading

import pytest
from argon2 import PasswordHasher

from server.app import passwords as module
from server.app.accounts import check_login, check_name, fold_login
from server.app.passwords import Passwords, check_password
from server.service.errors import BadRequestError, RateLimitedError

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


async def test_a_password_comes_back() -> None:
    passwords = Passwords()
    kept = await passwords.hash("correct horse")
    assert kept.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert kept != await passwords.hash("correct horse")
    assert await passwords.verify("correct horse", kept)
    assert not await passwords.verify("correct horsE", kept)
    assert not await passwords.verify("correct horse", None)
    assert not await passwords.verify("correct horse", "no hash at all")
    assert not passwords.is_outdated(kept)
    assert passwords.is_outdated(PasswordHasher(time_cost=1, memory_cost=64).hash("x"))


async def test_two_keyboards_write_the_same_password() -> None:
    passwords = Passwords()
    composed, decomposed = "pa\u00dfw\u00f6rter", "pa\u00dfwo\u0308rter"
    assert await passwords.verify(decomposed, await passwords.hash(composed))


async def test_two_at_once_and_not_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_WAITING", 5)
    running, most, lock, may_end = 0, 0, threading.Lock(), threading.Event()
    loop, two_run = asyncio.get_running_loop(), asyncio.Event()

    def slow(_hasher: PasswordHasher, _password: bytes) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 2:
                loop.call_soon_threadsafe(two_run.set)
        assert may_end.wait(20)
        with lock:
            running -= 1
        return "a hash"

    monkeypatch.setattr(PasswordHasher, "hash", slow)
    passwords = Passwords()
    tasks = [asyncio.create_task(passwords.hash("x")) for _ in range(5)]
    await two_run.wait()
    with pytest.raises(RateLimitedError):
        await passwords.hash("x")
    may_end.set()
    assert await asyncio.gather(*tasks) == ["a hash"] * 5
    assert most == 2
    assert await passwords.hash("x") == "a hash", "there is room again"


def test_lengths() -> None:
    check_password("x" * 10)
    check_password("密" * 256)
    for wrong in ("x" * 9, "x" * 257):
        with pytest.raises(BadRequestError) as refused:
            check_password(wrong)
        assert refused.value.param == "password"


@pytest.mark.parametrize(
    ("typed", "kept"),
    [(" Ana ", "ana"), ("ＡＮＡ", "ana"), ("Straße", "strasse"), ("李雷", "李雷"), ("ﬁn", "fin")],
)
def test_logins_are_folded(typed: str, kept: str) -> None:
    assert check_login(typed) == kept == fold_login(kept)


def test_names_stand_on_one_line() -> None:
    assert check_name(" Ana\n Maria ") == "Ana Maria"
    for wrong in (" ", "x" * 101, "a\u202eb", "a\0b"):
        with pytest.raises(BadRequestError):
            check_name(wrong)
