"""Who is in which course, on both databases."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from server.store import enrolments as module
from server.store.courses import CourseNameTakenError, Courses
from server.store.database import Database
from server.store.enrolments import Enrolments, adopt_courses
from server.store.ids import new_id
from server.store.schema import Course, Enrolment, Material, MaterialState, User

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


async def add(database: Database, *rows: object) -> None:
    async with database.transaction() as session:
        session.add_all(rows)


async def make(database: Database, num_users: int) -> tuple[str, list[str]]:
    course = Course(id=new_id(), slug="course", title="Course")
    users = [User(id=new_id()) for _ in range(num_users)]
    await add(database, course, *users)
    return course.id, [user.id for user in users]


async def test_many_come_in_at_once(database: Database) -> None:
    """Each twice, as from two tabs."""
    course, users = await make(database, 12)
    enrolments = Enrolments(database)
    await asyncio.gather(*(enrolments.enrol(course, user, "student") for user in users * 2))
    people = await enrolments.people(course)
    assert sorted(one.user.id for one in people) == sorted(users)
    assert len({one.enrolment.pseudonym for one in people}) == 12


async def test_a_pseudonym_is_nobody_else_s(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    course, (first, second) = await make(database, 2)
    enrolments = Enrolments(database)
    drawn = iter(["Student A", "Student A", "Student A", "Student B"])
    monkeypatch.setattr(module, "new_pseudonym", lambda length: next(drawn))
    assert (await enrolments.enrol(course, first, "student")).pseudonym == "Student A"
    assert (await enrolments.enrol(course, second, "student")).pseudonym == "Student B"
    again = await enrolments.enrol(course, first, "teacher")
    assert (again.pseudonym, again.role) == ("Student A", "student"), "they stay what they are"


async def test_whose_courses_they_are(database: Database) -> None:
    course, (teacher, student, stranger) = await make(database, 3)
    enrolments = Enrolments(database)
    await enrolments.enrol(course, teacher, "teacher")
    await enrolments.enrol(course, student, "student")
    now = datetime.now(UTC)
    states: dict[str, dict[str, Any]] = {
        "shown": {},
        "hidden": {"is_hidden": True},
        "later": {"visible_from": now + timedelta(hours=1)},
        "since": {"visible_from": now - timedelta(hours=1)},
        "failed": {"state": MaterialState.FAILED},
    }
    await add(
        database,
        *(
            Material(course_id=course, name=name, title=name, content_sha256=name, **fields)
            for name, fields in states.items()
        ),
        Course(id=new_id(), slug="open", title="Open", is_open=True),
        Course(id=new_id(), slug="closed", title="Closed"),
    )

    async def seen(user: str, at: datetime = now) -> list[tuple[str, int]]:
        return [
            (one.course.slug, one.num_materials) for one in await enrolments.courses_of(user, at=at)
        ]

    assert await seen(teacher) == [("course", 5), ("open", 0)]
    assert await seen(student) == [("course", 2), ("open", 0)]
    assert await seen(student, now + timedelta(hours=2)) == [("course", 3), ("open", 0)]
    assert await seen(stranger) == [("open", 0)]
    await Courses(database).change(course, {"archived_at": now})
    assert await seen(student) == [("open", 0)]
    assert await seen(teacher) == [("course", 5), ("open", 0)]


async def test_a_course_is_found_by_its_id_before_a_slug(database: Database) -> None:
    course, (user,) = await make(database, 1)
    await add(database, Course(id=new_id(), slug=course, title="Named like the other's id"))
    found = await Enrolments(database).find(user, course)
    assert found is not None
    assert found.course.id == course
    assert found.enrolment is None
    assert await Enrolments(database).find(user, "no\0where") is None


async def test_names_of_courses_are_taken_once(database: Database) -> None:
    course, (user,) = await make(database, 1)
    courses = Courses(database)

    def place() -> Enrolment:
        return Enrolment(user_id=user, role="teacher", pseudonym="Student A")

    with pytest.raises(CourseNameTakenError):
        await courses.add(Course(slug="course", title="x"), place())
    await courses.change(course, {"join_code": "ABCD2345"})
    other = await courses.add(Course(slug="other", title="x"), place())
    with pytest.raises(CourseNameTakenError):
        await courses.change(other.id, {"join_code": "ABCD2345"})
    found = await courses.with_code("ABCD2345")
    assert found is not None
    assert found.id == course
    await courses.change(course, {"archived_at": datetime.now(UTC)})
    assert await courses.with_code("ABCD2345") is None, "nobody joins what is archived"


async def test_courses_that_nobody_teaches_are_adopted(database: Database) -> None:
    course, (first, second) = await make(database, 2)
    enrolments = Enrolments(database)
    async with database.transaction() as session:
        assert await adopt_courses(session, first) == [course]
        assert await adopt_courses(session, second) == []
    assert await enrolments.courses_taught_by_others(first, second) == 1
    assert await enrolments.courses_taught_by_others(first, first) == 0
