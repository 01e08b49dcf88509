"""`CourseSettings`: courses made and changed, each field checked."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import UNSET, UnsetType

from server.app.memberships import new_code
from server.service.auth import UserId
from server.service.errors import BadRequestError, ConflictError, NotFoundError
from server.store.column_types import utc_now
from server.store.courses import CourseNameTakenError, Courses
from server.store.enrolments import new_pseudonym
from server.store.ids import new_id
from server.store.schema import Course, Enrolment

MAX_TITLE_CHARS = 200
MAX_SUGGESTIONS, MAX_SUGGESTION_CHARS = 12, 300
MAX_WEEKS, MAX_RETENTION_DAYS = 60, 36_500
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_ID = re.compile(r"[0-9a-f]{26}")
_ATTEMPTS = 5


class NewCourse(msgspec.Struct, frozen=True):
    title: str
    title_zh: str | None = None
    language: str = "en"
    slug: str | None = None
    starts_on: date | None = None
    num_weeks: int | None = None
    timezone: str | None = None


class Suggestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question to start with, in one language or both."""

    en: str | None = None
    zh: str | None = None


class ChangedCourse(msgspec.Struct, frozen=True):
    """What is named changes; null takes away what may be missing."""

    title: str | UnsetType = UNSET
    title_zh: str | UnsetType | None = UNSET
    language: str | UnsetType = UNSET
    suggestions: list[Suggestion] | UnsetType = UNSET
    starts_on: date | UnsetType | None = UNSET
    num_weeks: int | UnsetType | None = UNSET
    timezone: str | UnsetType | None = UNSET
    shows_names: bool | UnsetType = UNSET
    is_open: bool | UnsetType = UNSET
    retention_days: int | UnsetType | None = UNSET
    is_archived: bool | UnsetType = UNSET


class CourseSettings:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(self, courses: Courses, clock: Callable[[], datetime] = utc_now) -> None:
        self._courses = courses
        self._clock = clock

    async def create(self, teacher: UserId, wanted: NewCourse) -> Course:
        """A new course with a join code and its teacher. Raises BadRequestError, and ConflictError
        for a slug that is taken."""
        fields = _checked(
            {name: getattr(wanted, name) for name in wanted.__struct_fields__ if name != "slug"}
        )
        if wanted.slug is not None:
            _check_slug(wanted.slug)
        for _ in range(_ATTEMPTS):
            course = Course(
                id=new_id(),
                slug=wanted.slug or slug_of(wanted.title),
                suggestions=[],
                join_code=new_code(),
                **fields,
            )
            place = Enrolment(user_id=teacher, role="teacher", pseudonym=new_pseudonym())
            try:
                return await self._courses.add(course, place)
            except CourseNameTakenError:
                if wanted.slug is not None and await self._courses.get(wanted.slug):
                    break
        raise ConflictError(
            "Another course has this short name.",
            message_zh="该短名称已被其他课程使用。",
            param="slug",
            reason="slug_taken",
        )

    async def change(self, course_id: str, wanted: ChangedCourse) -> None:
        """Other settings. Raises BadRequestError, NotFoundError."""
        fields = {
            name: value
            for name in wanted.__struct_fields__
            if (value := getattr(wanted, name)) is not UNSET
        }
        is_archived = fields.pop("is_archived", None)
        checked = _checked(fields)
        if is_archived is not None:
            checked["archived_at"] = self._clock() if is_archived else None
        if await self._courses.change(course_id, checked) is None:
            raise NotFoundError("There is no such course.", param="course")


def slug_of(title: str) -> str:
    """A short name for addresses, which nobody else has."""
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40].strip("-")
    end = secrets.token_hex(3)
    return f"{words}-{end}" if words else f"course-{end}"


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields as they are stored. Raises BadRequestError naming a wrong one."""
    checked = dict(fields)
    for name, value in fields.items():
        match name:
            case "title":
                checked[name] = _line(value, name)
            case "title_zh":
                checked[name] = _line(value, name) if value and value.strip() else None
            case "language" if value not in ("en", "zh"):
                raise _wrong(name, "must be en or zh", "只能是 en 或 zh")
            case "num_weeks" if value is not None:
                _check_range(name, value, MAX_WEEKS)
            case "retention_days" if value is not None:
                _check_range(name, value, MAX_RETENTION_DAYS)
            case "timezone" if value is not None and not _is_timezone(value):
                raise _wrong(
                    name,
                    "must be a time zone such as Asia/Shanghai",
                    "须为时区名称，例如 Asia/Shanghai",
                )
            case "suggestions":
                checked[name] = _suggestions(value)
            case _:
                pass
    return checked


def _line(text: str, name: str) -> str:
    line = " ".join(text.split())
    if not 1 <= len(line) <= MAX_TITLE_CHARS or not line.isprintable():
        raise _wrong(
            name,
            f"must have 1 to {MAX_TITLE_CHARS} characters, on one line",
            f"须为 1 到 {MAX_TITLE_CHARS} 个字符的单行文字",
        )
    return line


def _suggestions(wanted: list[Suggestion]) -> list[dict[str, str]]:
    if len(wanted) > MAX_SUGGESTIONS:
        raise _wrong(
            "suggestions",
            f"may have at most {MAX_SUGGESTIONS} entries",
            f"最多 {MAX_SUGGESTIONS} 条",
        )
    found = []
    for suggestion in wanted:
        texts = {
            language: " ".join(text.split())
            for language in ("en", "zh")
            if (text := getattr(suggestion, language))
        }
        if any(len(text) > MAX_SUGGESTION_CHARS or "\0" in text for text in texts.values()):
            raise _wrong(
                "suggestions",
                f"may have at most {MAX_SUGGESTION_CHARS} characters each",
                f"每条最多 {MAX_SUGGESTION_CHARS} 个字符",
            )
        if any(texts.values()):
            found.append(texts)
    return found


def _check_range(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise _wrong(name, f"must be from 1 to {most}", f"须在 1 到 {most} 之间")


def _check_slug(slug: str) -> None:
    if not _SLUG.fullmatch(slug) or _ID.fullmatch(slug):
        raise _wrong(
            "slug",
            "must have 1 to 64 characters of a-z, 0-9 and -",
            "须为 1 到 64 个字符，只含 a-z、0-9 和 -",
        )


def _is_timezone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return len(name) <= 64


def _wrong(name: str, english: str, chinese: str) -> BadRequestError:
    return BadRequestError(f"{name} {english}.", message_zh=f"{name} {chinese}。", param=name)
