"""Enrolments: who is in which course, as what, and under which pseudonym."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import and_, delete, func, or_, select, true, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from server.store.column_types import utc_now
from server.store.database import Database
from server.store.materials import is_shown
from server.store.schema import Course, Enrolment, Material, User

CourseRole = Literal["student", "teacher"]

_PSEUDONYM_LETTERS = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""No 0, 1, I, O: they look like each other."""
_PSEUDONYM_LENGTH = 4
_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class CourseOf:
    """A course as one person meets it: `enrolment` None for whoever is not in it."""

    course: Course
    enrolment: Enrolment | None
    num_materials: int = 0
    """Those that this person may see."""


@dataclass(frozen=True, slots=True)
class EnrolledPerson:
    """Somebody in a course."""

    user: User
    enrolment: Enrolment


class Enrolments:
    """Repository of enrolments. Rows that it returns are detached: read them, never change them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, user_id: str, course: str) -> CourseOf | None:
        """The course with this id, or else with this slug, and the user's place in it."""
        if "\0" in course:  # which PostgreSQL refuses even to look for
            return None
        query = (
            select(Course, Enrolment)
            .outerjoin(
                Enrolment,
                and_(Enrolment.course_id == Course.id, Enrolment.user_id == user_id),
            )
            .where((Course.id == course) | (Course.slug == course))
        )
        async with self._database.session() as session:
            rows = [CourseOf(*row) for row in await session.execute(query)]
        return max(rows, key=lambda row: row.course.id == course, default=None)

    async def courses_of(self, user_id: str, *, at: datetime | None = None) -> list[CourseOf]:
        """The courses that the user is in, then those that are open to guests, each in order of
        making. Archived ones only for their teachers."""
        is_teacher = Enrolment.role == "teacher"
        may_see = or_(is_teacher, is_shown(at or utc_now()))
        num_materials = (
            select(func.count())
            .where(Material.course_id == Course.id, may_see)
            .correlate(Course, Enrolment)
            .scalar_subquery()
        )
        query = (
            select(Course, Enrolment, num_materials)
            .outerjoin(
                Enrolment,
                and_(Enrolment.course_id == Course.id, Enrolment.user_id == user_id),
            )
            .where(
                or_(
                    is_teacher,
                    and_(
                        Course.archived_at.is_(None),
                        or_(Enrolment.user_id.is_not(None), Course.is_open == true()),
                    ),
                )
            )
            .order_by(Enrolment.user_id.is_(None), Course.id)
        )
        async with self._database.session() as session:
            return [CourseOf(*row) for row in await session.execute(query)]

    async def people(self, course_id: str) -> list[EnrolledPerson]:
        """Everybody in the course: teachers first, then by name."""
        query = (
            select(User, Enrolment)
            .join(Enrolment, Enrolment.user_id == User.id)
            .where(Enrolment.course_id == course_id)
            .order_by(Enrolment.role.desc(), User.name, User.id)
        )
        async with self._database.session() as session:
            return [EnrolledPerson(*row) for row in await session.execute(query)]

    async def courses_taught_by_others(self, user_id: str, teacher_id: str) -> int:
        """In how many courses the user is that this teacher does not teach."""
        taught = select(Enrolment.course_id).where(
            Enrolment.user_id == teacher_id, Enrolment.role == "teacher"
        )
        query = select(func.count()).where(
            Enrolment.user_id == user_id, Enrolment.course_id.not_in(taught)
        )
        async with self._database.session() as session:
            return await session.scalar(query) or 0

    async def enrol(self, course_id: str, user_id: str, role: CourseRole) -> Enrolment:
        """Puts the user into the course, under a pseudonym that nobody else has there. Whoever is
        in it stays what they are."""
        for attempt in range(_ATTEMPTS):
            try:
                async with self._database.transaction() as session:
                    enrolment = await session.get(Enrolment, (course_id, user_id))
                    if enrolment is None:
                        enrolment = Enrolment(
                            course_id=course_id,
                            user_id=user_id,
                            role=role,
                            pseudonym=new_pseudonym(_PSEUDONYM_LENGTH + attempt // 2),
                        )
                        session.add(enrolment)
                        await session.flush()
                    return enrolment
            except IntegrityError:  # the pseudonym is taken, or the user came in meanwhile
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    async def set_role(self, course_id: str, user_id: str, role: CourseRole) -> None:
        """Makes somebody of the course its teacher or its student."""
        async with self._database.transaction() as session:
            await session.execute(
                update(Enrolment)
                .where(Enrolment.course_id == course_id, Enrolment.user_id == user_id)
                .values(role=role)
            )

    async def remove(self, course_id: str, user_id: str) -> bool:
        """Takes somebody out of the course; False: they were not in it."""
        async with self._database.transaction() as session:
            removed = await session.scalar(
                delete(Enrolment)
                .where(Enrolment.course_id == course_id, Enrolment.user_id == user_id)
                .returning(Enrolment.user_id)
            )
            return removed is not None


async def adopt_courses(session: AsyncSession, user_id: str) -> Sequence[str]:
    """Makes the user the teacher of every course that has none, in the transaction of `session`;
    the courses' ids."""
    has_teacher = (
        select(Enrolment.course_id)
        .where(Enrolment.course_id == Course.id, Enrolment.role == "teacher")
        .exists()
    )
    found = (await session.scalars(select(Course.id).where(~has_teacher).order_by(Course.id))).all()
    for course_id in found:
        names = select(Enrolment.pseudonym).where(Enrolment.course_id == course_id)
        taken = set(await session.scalars(names))
        pseudonym = new_pseudonym()
        while pseudonym in taken:
            pseudonym = new_pseudonym(_PSEUDONYM_LENGTH + 1)
        session.add(
            Enrolment(course_id=course_id, user_id=user_id, role="teacher", pseudonym=pseudonym)
        )
    await session.flush()
    return found


def new_pseudonym(length: int = _PSEUDONYM_LENGTH) -> str:
    """What a student is called where a course shows no names: `Student 7F2K`."""
    letters = "".join(secrets.choice(_PSEUDONYM_LETTERS) for _ in range(length))
    return f"Student {letters}"
