"""Courses: listed, looked up, made or brought up to date by slug."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select

from server.store.database import Database
from server.store.schema import Course, Material


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
    ) -> Course:
        """The course with this slug, made if need be, with these texts."""
        async with self._database.transaction() as session:
            course = await session.scalar(select(Course).where(Course.slug == slug))
            if course is None:
                course = Course(slug=slug)
                session.add(course)
            course.title = title
            course.title_zh = title_zh
            course.language = language
            course.suggestions = list(suggestions)
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

    async def first(self) -> Course | None:
        """The oldest course: the one meant when a question names none."""
        async with self._database.session() as session:
            return await session.scalar(select(Course).order_by(Course.id).limit(1))
