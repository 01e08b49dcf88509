"""Courses: made, looked up by id, slug or join code, changed, deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.exc import IntegrityError

from server.store.database import Database
from server.store.schema import Conversation, Course, Enrolment, Material


class CourseNameTakenError(Exception):
    """Another course has this slug or this join code."""


class Courses:
    """Repository of courses. Rows that it returns are detached: read them, never change them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(
        self,
        slug: str,
        *,
        title: str,
        title_zh: str | None = None,
        language: str = "en",
        suggestions: Sequence[dict[str, str]] = (),
        starts_on: date | None = None,
        num_weeks: int | None = None,
        timezone: str | None = None,
    ) -> Course:
        """The course of a folder, with this slug and these texts; made, open to guests, if need
        be. What is None of the calendar stays as it is."""
        async with self._database.transaction() as session:
            course = await session.scalar(select(Course).where(Course.slug == slug))
            if course is None:
                course = Course(slug=slug, is_open=True)
                session.add(course)
            course.title = title
            course.title_zh = title_zh
            course.language = language
            course.suggestions = list(suggestions)
            course.starts_on = starts_on or course.starts_on
            course.num_weeks = num_weeks or course.num_weeks
            course.timezone = timezone or course.timezone
            await session.flush()
            return course

    async def all(self) -> list[tuple[Course, int]]:
        """Every course with its number of materials, in order of making."""
        num_materials = (
            select(func.count())
            .where(Material.course_id == Course.id)
            .correlate(Course)
            .scalar_subquery()
        )
        async with self._database.session() as session:
            rows = await session.execute(select(Course, num_materials).order_by(Course.id))
            return [(course, count) for course, count in rows]

    async def get(self, id_or_slug: str) -> Course | None:
        """The course with this id, or else with this slug."""
        async with self._database.session() as session:
            rows = await session.scalars(
                select(Course).where((Course.id == id_or_slug) | (Course.slug == id_or_slug))
            )
            return max(rows, key=lambda course: course.id == id_or_slug, default=None)

    async def with_code(self, join_code: str) -> Course | None:
        """The course that this code opens, unless it is archived."""
        async with self._database.session() as session:
            return await session.scalar(
                select(Course).where(Course.join_code == join_code, Course.archived_at.is_(None))
            )

    async def add(self, course: Course, teacher: Enrolment) -> Course:
        """A new course with its first teacher. Raises CourseNameTakenError."""
        try:
            async with self._database.transaction() as session:
                session.add(course)
                await session.flush()
                teacher.course_id = course.id
                session.add(teacher)
                await session.flush()
        except IntegrityError as error:
            raise CourseNameTakenError from error
        return course

    async def change(self, course_id: str, fields: Mapping[str, Any]) -> Course | None:
        """Sets columns by name; None: there is no such course. Raises CourseNameTakenError."""
        try:
            async with self._database.transaction() as session:
                course = await session.get(Course, course_id)
                if course is not None:
                    for name, value in fields.items():
                        setattr(course, name, value)
                    await session.flush()
                return course
        except IntegrityError as error:
            raise CourseNameTakenError from error

    async def conversation_ids(self, course_id: str) -> Sequence[str]:
        """Every conversation about the course, whoever's."""
        async with self._database.session() as session:
            found = await session.scalars(
                select(Conversation.id).where(Conversation.course_id == course_id)
            )
            return found.all()

    async def delete(self, course_id: str) -> bool:
        """Deletes a course with its people's places. False, and nothing is deleted, where it has
        materials or conversations: what is searched of them is not here."""
        async with self._database.transaction() as session:
            # Locked: nothing comes into it before the transaction ends.
            await session.get(Course, course_id, with_for_update=True)
            for table in (Material, Conversation):
                if await session.scalar(
                    select(table.id).where(table.course_id == course_id).limit(1)
                ):
                    return False
            await session.execute(delete(Course).where(Course.id == course_id))
            return True
