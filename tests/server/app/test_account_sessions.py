"""Sessions of accounts: by token, for as long as they are used, and no longer than half a year."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from server.app.account_sessions import AccountSessions, token_id
from server.app.accounts import Accounts
from server.app.passwords import Passwords
from server.service.auth import Access, UserId
from server.service.errors import UnauthorizedError
from server.store.database import Database, sqlite_url
from server.store.login_sessions import LoginSessions
from server.store.schema import User
from server.store.users import NewAccount, Users
from tests.server.app.asgi_socket import socket_of
from tests.server.app.site import new_key, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 9, 7, 8, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, anyio_backend: object) -> AsyncIterator[Database]:
    database = Database(sqlite_url(tmp_path / "lectern.db"))
    await database.open()
    yield database
    await database.close()


async def add(store: Database, clock: Clock, role: str = "student") -> User:
    return await Users(store).add(
        NewAccount("Ana", f"ana-{role}", "a hash", role), link=None, at=clock.now
    )


async def test_a_session_lasts_while_it_is_used(store: Database, clock: Clock) -> None:
    sessions = AccountSessions(LoginSessions(store), clock)
    user = await add(store, clock)
    token = await sessions.begin(user)
    idle = await sessions.begin(user)
    for _ in range(8):
        clock.now += timedelta(days=20)
        assert sessions.find(token) is not None
    assert sessions.find(idle) is None
    assert sessions.caller(UserId(user.id)) is not None
    clock.now += timedelta(days=20)
    assert sessions.find(token) is None, "after 180 days"
    assert sessions.caller(UserId(user.id)) is None
    assert sessions.person(UserId(user.id)) is None


async def test_what_is_over_is_dropped_and_told(store: Database, clock: Clock) -> None:
    sessions = AccountSessions(LoginSessions(store), clock)
    told: list[str] = []
    sessions.on_end(lambda: told.append("end"))
    user = await add(store, clock)
    await sessions.begin(user)
    clock.now += timedelta(days=29)
    kept = await sessions.begin(user)
    await sessions.keep()
    assert told == []
    clock.now += timedelta(days=2)
    await sessions.keep()
    assert told == ["end"]
    assert [row.id for row, _ in await LoginSessions(store).all()] == [token_id(kept)]


async def test_uses_are_written_down(store: Database, clock: Clock) -> None:
    sessions = AccountSessions(LoginSessions(store), clock)
    token = await sessions.begin(await add(store, clock))
    clock.now += timedelta(days=25)
    sessions.find(token)
    await sessions.keep()
    clock.now += timedelta(days=25)
    again = AccountSessions(LoginSessions(store), clock)
    await again.start()
    assert again.find(token) is not None
    await again.stop()
    clock.now += timedelta(days=31)
    late = AccountSessions(LoginSessions(store), clock)
    await late.start()
    assert late.find(token) is None
    await late.stop()
    assert await LoginSessions(store).all() == []


async def test_the_store_does_not_know_the_token(store: Database, clock: Clock) -> None:
    sessions = AccountSessions(LoginSessions(store), clock)
    token = await sessions.begin(await add(store, clock))
    ((row, _),) = await LoginSessions(store).all()
    assert token not in repr(vars(row))
    assert sessions.find(row.id) is None
    assert sessions.find("s_" + row.id) is None


async def test_who_may_ask_the_api(store: Database, clock: Clock) -> None:
    sessions = AccountSessions(LoginSessions(store), clock)
    teacher, student = [await add(store, clock, role) for role in ("teacher", "student")]
    found = [sessions.find(await sessions.begin(user)) for user in (teacher, student)]
    accesses = [caller.access for caller in found if caller is not None]
    assert accesses == [frozenset({Access.CHAT}), frozenset()]


async def test_ending_all_but_one(store: Database, clock: Clock) -> None:
    sessions = AccountSessions(LoginSessions(store), clock)
    user = await add(store, clock)
    first, second, third = [await sessions.begin(user) for _ in range(3)]
    await sessions.end_all(UserId(user.id), but=second)
    assert [sessions.find(token) is not None for token in (first, second, third)] == [
        False,
        True,
        False,
    ]
    await sessions.end(second)
    await sessions.end(second)
    assert await LoginSessions(store).all() == []


async def test_where_people_log_in_a_stranger_s_socket_is_refused(tmp_path: Path) -> None:
    async with open_site(tmp_path, login="on") as site:
        auth = site.app.service.auth
        for session in (None, auth.new_session()[1]):
            async with socket_of(site, session) as socket:
                await socket.send("hello")
                told = await socket.until("error", "welcome")
                assert told["code"] == "unauthorized"
                assert (await socket.until())["code"] == 1008
        user = await site.account("student", "ana", "demo")
        async with socket_of(site, site.session(user)) as socket:
            await socket.send("hello")
            assert (await socket.until("error", "welcome"))["type"] == "welcome"
        async with site.client(user) as client:
            assert (await client.get("/api/me")).json()["asks_for_login"] is True


async def test_a_log_out_closes_this_browser_s_sockets_and_no_other(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        user = await site.account("student", "ana", "demo")
        async with site.client(user) as client:
            row = await Users(site.app.database).get(user)
            assert row is not None
            elsewhere = await site.app.account_sessions.begin(row)
            async with (
                socket_of(site, site.tokens[user]) as mine,
                socket_of(site, elsewhere) as other,
            ):
                for socket in (mine, other):
                    await socket.send("hello")
                    await socket.until("welcome")
                await client.post("/api/logout")
                assert (await mine.until())["code"] == 1008
                await other.send("ask", id=new_key(), text="When?")
                assert (await other.until("accepted", "error"))["type"] == "accepted"
                await other.until("finish")


async def test_a_page_of_an_ended_session_is_no_stranger(tmp_path: Path) -> None:
    """It would ask on as somebody new, whose conversations nobody finds again."""
    async with open_site(tmp_path) as site:
        user = await site.account("student", "ana", "demo")
        await site.app.account_sessions.end_all(user)
        async with socket_of(site, site.tokens[user]) as socket:
            assert (await socket.until("welcome"))["code"] == 1008


async def test_a_locked_database_does_not_hold_up_the_end(
    store: Database, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.app.account_sessions._PATIENCE_S", 0.05)
    sessions = AccountSessions(LoginSessions(store), clock)
    await sessions.start()
    token = await sessions.begin(await add(store, clock))
    clock.now += timedelta(days=1)
    sessions.find(token)
    with sqlite3.connect(tmp_path / "lectern.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        await sessions.stop()
        other.execute("ROLLBACK")
    other.close()
    await sessions.keep()
    ((row, _),) = await LoginSessions(store).all()
    assert row.seen_at == clock.now, "what was not written is written later"


class SlowPasswords(Passwords):
    """Compares when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.compares = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def verify(self, password: str, kept: str | None) -> bool:
        is_right = await super().verify(password, kept)
        self.compares.set()
        await self.may_go_on.wait()
        return is_right


@pytest.mark.parametrize("change", ["disabled", "another password", "gone", "nothing"])
async def test_a_log_in_under_way_does_not_outlive_what_ends_all_sessions(
    store: Database, clock: Clock, change: str
) -> None:
    users, passwords = Users(store), SlowPasswords()
    sessions = AccountSessions(LoginSessions(store), clock)
    accounts = Accounts(users, sessions, passwords, clock=clock)
    password = "a long enough password"
    entered = await accounts.register("Ana", "ana", password, role="student")
    user = entered.person.user
    log_in = asyncio.create_task(accounts.log_in("ana", password, "here"))
    await passwords.compares.wait()
    if change == "disabled":
        await accounts.disable(user, True)
    elif change == "another password":
        await users.set_password(user, await passwords.hash("another password"), at=clock.now)
        await sessions.end_all(user)
    elif change == "gone":
        await sessions.end_all(user)
        async with store.transaction() as session:
            await session.delete(await session.get_one(User, user))
    passwords.may_go_on.set()
    if change == "nothing":
        assert sessions.find((await log_in).token) is not None
        return
    with pytest.raises(UnauthorizedError):
        await log_in
    assert sessions.person(user) is None
    assert await LoginSessions(store).all() == []


async def test_a_password_hashed_anew_never_replaces_another_one(
    store: Database, clock: Clock
) -> None:
    users, user = Users(store), await add(store, clock)
    await users.rehash(user.id, "a hash", "the same anew")
    await users.rehash(user.id, "a hash", "too late")
    kept = await users.get(user.id)
    assert kept is not None
    assert kept.password_hash == "the same anew"
