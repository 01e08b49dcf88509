"""How the API tells courses, the people in them, and links."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from server.app.access import CourseCard
from server.app.calendar import CourseCalendar, today_in
from server.app.links import IssuedLink
from server.app.records import time_json
from server.store.column_types import utc_now
from server.store.enrolments import EnrolledPerson
from server.store.schema import Course


def course_json(card: CourseCard, site: str) -> dict[str, Any]:
    """A course as the caller sees it; `site` is what links begin with."""
    course = card.course
    told: dict[str, Any] = {
        "id": course.id,
        "slug": course.slug,
        "title": course.title,
        "title_zh": course.title_zh,
        "language": course.language,
        "role": card.role,
        "num_materials": card.num_materials,
        "suggestions": course.suggestions,
        "starts_on": course.starts_on.isoformat() if course.starts_on else None,
        "num_weeks": course.num_weeks,
        "timezone": course.timezone,
        "week": _week(course),
    }
    if card.role != "teacher":
        return told
    return told | {
        "join_code": course.join_code,
        "join_url": f"{site}/join/{course.join_code}" if course.join_code else None,
        "is_open": course.is_open,
        "shows_names": course.shows_names,
        "retention_days": course.retention_days,
        "archived_at": time_json(course.archived_at) if course.archived_at else None,
        "created_at": time_json(course.created_at),
    }


def enrolled_json(found: EnrolledPerson, *, shows_names: bool) -> dict[str, Any]:
    """Somebody in a course, for its teachers. Without names in the records, nothing here may say
    whose pseudonym is whose."""
    user, enrolment = found.user, found.enrolment
    return {
        "id": user.id,
        "name": user.name,
        "login": user.login,
        "account": user.role,
        "role": enrolment.role,
        "pseudonym": enrolment.pseudonym if shows_names else None,
        "is_disabled": user.is_disabled,
        "joined_at": time_json(enrolment.joined_at),
        "seen_at": time_json(user.seen_at) if user.seen_at else None,
    }


def link_json(issued: IssuedLink, site: str) -> dict[str, Any]:
    """A new link, for whoever is to pass it on."""
    return {
        "url": site + issued.path,
        "token": issued.token,
        "expires_at": time_json(issued.expires_at),
    }


def site_url(request: Request, public_url: str | None) -> str:
    """What links to this site begin with: the configured address, else the one that the caller
    has used."""
    return (public_url or str(request.base_url)).rstrip("/")


def _week(course: Course) -> int | None:
    today = today_in(course.timezone, utc_now())
    return CourseCalendar(today, course.starts_on, course.num_weeks).week_of(today)
