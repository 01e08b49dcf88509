"""Accounts, links and sessions as rows, on both databases."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from server.store.database import Database
from server.store.enrolments import Enrolments
from server.store.login_sessions import LoginSessions
from server.store.schema import Course, OneTimeLink
from server.store.users import LinkUsedError, LoginTakenError, NewAccount, Users

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

NOW = datetime(2026, 9, 7, 8, 0, tzinfo=UTC)
DAY = timedelta(days=1)


def account(login: str, role: str = "teacher") -> NewAccount:
    return NewAccount(login.title(), login, "a hash", role)


def link(id: str, purpose: str = "invite", user_id: str | None = None) -> OneTimeLink:
    return OneTimeLink(
        id=id,
        purpose=purpose,
        user_id=user_id,
        role="teacher",
        created_at=NOW,
        expires_at=NOW + DAY,
    )


async def test_one_login_for_whoever_is_first(database: Database) -> None:
    users = Users(database)
    results = await asyncio.gather(
        *(users.add(account("ana"), link=None, at=NOW) for _ in range(5)), return_exceptions=True
    )
    assert sum(isinstance(result, LoginTakenError) for result in results) == 4
    found = await users.with_login("ana")
    assert found is not None
    assert found.name == "Ana"


async def test_one_account_a_link(database: Database) -> None:
    users = Users(database)
    await users.add_link(link("l1"))
    results = await asyncio.gather(
        *(users.add(account(f"name{n}"), link="l1", at=NOW) for n in range(5)),
        return_exceptions=True,
    )
    assert sum(isinstance(result, LinkUsedError) for result in results) == 4
    assert await users.find_link("l1", NOW) is None
    made = [await users.with_login(f"name{n}") for n in range(5)]
    assert sum(user is not None for user in made) == 1, "no account without its link"


async def test_a_taken_login_does_not_use_the_link_up(database: Database) -> None:
    users = Users(database)
    await users.add(account("ana"), link=None, at=NOW)
    await users.add_link(link("l1"))
    with pytest.raises(LoginTakenError):
        await users.add(account("ana"), link="l1", at=NOW)
    assert await users.find_link("l1", NOW) is not None


async def test_the_first_teacher_has_an_account_and_the_courses_or_neither(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = Users(database)
    course = Course(slug="course", title="Course")
    async with database.transaction() as session:
        session.add(course)
    await users.add_link(link("l1", "first_teacher"))

    async def fail(_session: AsyncSession, _user_id: str) -> None:
        raise OSError("the process ends here")

    monkeypatch.setattr("server.store.users.adopt_courses", fail)
    with pytest.raises(OSError, match="ends here"):
        await users.add(account("ana"), link="l1", at=NOW, adopts=True)
    assert not await users.has_teacher()
    assert await users.find_link("l1", NOW) is not None

    monkeypatch.undo()
    ana = await users.add(account("ana"), link="l1", at=NOW, adopts=True)
    ben = await users.add(account("ben"), link=None, at=NOW, adopts=True)
    people = await Enrolments(database).people(course.id)
    assert [(one.user.id, one.enrolment.role) for one in people] == [(ana.id, "teacher")]
    assert [one.enrolment for one in await Enrolments(database).courses_of(ben.id)] == []


async def test_a_link_ends_after_its_day(database: Database) -> None:
    users = Users(database)
    await users.add_link(link("l1"))
    assert await users.find_link("l1", NOW + DAY - timedelta(seconds=1)) is not None
    assert await users.find_link("l1", NOW + DAY) is None
    with pytest.raises(LinkUsedError):
        await users.add(account("ana"), link="l1", at=NOW + DAY)


async def test_a_new_password_makes_other_links_worthless(database: Database) -> None:
    users = Users(database)
    user = await users.add(account("ana", "student"), link=None, at=NOW)
    await users.add_link(link("l1", "reset", user.id))
    await users.add_link(link("invite"))
    await users.set_password(user.id, "another hash", at=NOW)
    assert await users.find_link("l1", NOW) is None
    assert await users.find_link("invite", NOW) is not None
    with pytest.raises(LinkUsedError):
        await users.set_password(user.id, "a third", link="l1", at=NOW)
    found = await users.get(user.id)
    assert found is not None
    assert found.password_hash == "another hash"


async def test_a_newer_link_takes_the_place_of_its_like(database: Database) -> None:
    users = Users(database)
    ana, ben = [await users.add(account(n, "student"), link=None, at=NOW) for n in ("ana", "ben")]
    for one in (
        link("f1", "first_teacher"),
        link("i1"),
        link("a1", "reset", ana.id),
        link("b1", "reset", ben.id),
        link("f2", "first_teacher"),
        link("i2"),
        link("a2", "reset", ana.id),
    ):
        await users.add_link(one)
    names = ("f1", "f2", "i1", "i2", "a1", "a2", "b1")
    left = [name for name in names if await users.find_link(name, NOW) is not None]
    assert left == ["f2", "i1", "i2", "a2", "b1"]


async def test_sessions_of_the_disabled_are_none(database: Database) -> None:
    users, sessions = Users(database), LoginSessions(database)
    ana, ben = [await users.add(account(n), link=None, at=NOW) for n in ("ana", "ben")]
    for user in (ana, ben):
        for number in range(2):
            assert await sessions.add(
                f"{user.login}{number}", user, created_at=NOW, expires_at=NOW + DAY
            )
    await users.set_disabled(ana.id, True)
    assert not await sessions.add("late", ana, created_at=NOW, expires_at=NOW + DAY)
    await sessions.saw({"ben0": NOW + DAY / 2, "gone": NOW})
    await sessions.remove({"ben1", "gone"})
    ((row, user),) = await sessions.all()
    assert (row.id, row.seen_at, user.id) == ("ben0", NOW + DAY / 2, ben.id)
    assert user.seen_at == NOW


async def test_only_an_account_makes_a_teacher(database: Database) -> None:
    users = Users(database)
    assert not await users.has_teacher()
    await users.add(account("ana", "student"), link=None, at=NOW)
    assert not await users.has_teacher()
    await users.add(account("wu"), link=None, at=NOW)
    assert await users.has_teacher()
