"""The query of a teacher's log: filters from the query string, in words that name what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from server.service.errors import BadRequestError, ForbiddenError
from server.store.records import RecordFilter, RecordKind
from server.store.schema import Course

MOST_LISTED = 200
_USUALLY_LISTED = 50
_MOST_CHARS = 500


def record_filter(course: Course, query: Mapping[str, str]) -> RecordFilter:
    """The filter that a query string asks for. Raises BadRequestError, which names the parameter,
    and ForbiddenError for a search by name where the course shows none."""
    person = _text(query, "person")
    if person is not None and not course.shows_names:
        raise ForbiddenError(
            "This course shows no names; records cannot be searched by name.", param="person"
        )
    zone = zone_of(course)
    since, until = _moment(query, "from", zone), _moment(query, "to", zone, is_end=True)
    return RecordFilter(
        course.id,
        _kinds(query),
        since,
        until,
        _text(query, "text"),
        _text(query, "material"),
        person,
        _text(query, "pseudonym"),
    )


def num_listed(query: Mapping[str, str]) -> int:
    """How many records a page has. Raises BadRequestError."""
    text = query.get("limit") or str(_USUALLY_LISTED)
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= MOST_LISTED):
        raise BadRequestError(f"limit must be from 1 to {MOST_LISTED}.", param="limit")
    return int(text)


def zone_of(course: Course | None) -> ZoneInfo:
    """The course's time zone; UTC where it has none that is known here."""
    try:
        return ZoneInfo((course and course.timezone) or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def _text(query: Mapping[str, str], name: str) -> str | None:
    text = query.get(name, "").strip()
    if len(text) > _MOST_CHARS:
        raise BadRequestError(f"{name} has more than {_MOST_CHARS} characters.", param=name)
    if "\0" in text:
        raise BadRequestError(f"{name} holds a NUL character.", param=name)
    return text or None


def _kinds(query: Mapping[str, str]) -> tuple[RecordKind, ...]:
    names = [name.strip() for name in query.get("kind", "").split(",") if name.strip()]
    try:
        return tuple(RecordKind(name) for name in dict.fromkeys(names))
    except ValueError:
        known = ", ".join(RecordKind)
        raise BadRequestError(f"kind must be of: {known}.", param="kind") from None


def _moment(
    query: Mapping[str, str], name: str, zone: ZoneInfo, *, is_end: bool = False
) -> datetime | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        if len(text) == 10:
            day = date.fromisoformat(text) + timedelta(days=is_end)
            return datetime.combine(day, time(), zone).astimezone(UTC)
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise BadRequestError(
        f"{name} must be a day such as 2026-09-07, or a moment with an offset.", param=name
    )
