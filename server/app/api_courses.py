"""Courses and their people over HTTP.

COURSE is `{id, slug, title, title_zh, language, role: guest|student|teacher, num_materials,
suggestions: [{en?, zh?}], starts_on: "2026-09-07" or null, num_weeks, timezone, week: the present
week's number or null}`; for its teachers also `{join_code: "ABCD2345" or null, join_url, is_open,
shows_names, retention_days, archived_at, created_at}`.

ENROLLED is `{id, name, login, account: student|teacher, role: student|teacher, pseudonym,
is_disabled, joined_at, seen_at}`; where the course shows no names, `pseudonym` is null, so that
nobody reads from the list who it is in the records.

- GET /api/courses (session) → `{courses: [COURSE]}`: one's own first, then other open ones
- POST /api/courses (teacher) `{title, title_zh?, language?, slug?, starts_on?, num_weeks?,
  timezone?}` → 201 COURSE; the caller teaches it, and it has a join code; 409 `slug_taken`
- GET /api/courses/{course} (member) → COURSE
- PATCH /api/courses/{course} (its teacher) any of `{title, title_zh, language, suggestions,
  starts_on, num_weeks, timezone, shows_names, is_open, retention_days, is_archived}` → COURSE
- DELETE /api/courses/{course} (its teacher) `{confirm: the title}` → 204: with its materials,
  conversations and records; 409 `not_archived` before it is archived
- POST /api/courses/{course}/join-code (its teacher) → COURSE with another code; the one before
  opens nothing any more
- DELETE /api/courses/{course}/join-code (its teacher) → COURSE without a code: nobody joins
- GET /api/courses/{course}/people (its teacher) → `{people: [ENROLLED]}`: teachers, then by name
- PATCH /api/courses/{course}/people/{person} (its teacher) `{role?, is_disabled?}` → ENROLLED; only
  a teacher's account can teach (`not_a_teacher`), a course keeps one (`last_teacher`); only
  students whom nobody else teaches can be disabled (`not_a_student`, `other_teachers`)
- DELETE /api/courses/{course}/people/{person} (its teacher) → 204: out of the course; what they
  asked stays in its records
- POST /api/courses/{course}/people/{person}/reset (its teacher) → 201 `{url, token, expires_at}`: a
  new password for a student

`{course}` is an id or a slug. An archived course is there for its teachers only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from server.app.access import Access, Need, guarded, member_of, person_of
from server.app.accounts import Accounts
from server.app.api_replies import json_reply
from server.app.api_requests import json_body
from server.app.course_json import course_json, enrolled_json, link_json, site_url
from server.app.course_settings import ChangedCourse, CourseSettings, NewCourse
from server.app.links import Links
from server.app.memberships import Memberships
from server.service.auth import UserId
from server.service.errors import BadRequestError, ConflictError
from server.store.enrolments import Enrolments
from server.store.schema import Course

RemoveCourse = Callable[[Course], Awaitable[None]]
"""Deletes a course with all that hangs on it."""


class Confirmed(msgspec.Struct, frozen=True):
    confirm: str = ""


class ChangedPerson(msgspec.Struct, frozen=True):
    role: Literal["student", "teacher"] | None = None
    is_disabled: bool | None = None


class CourseApi:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self,
        access: Access,
        accounts: Accounts,
        links: Links,
        memberships: Memberships,
        enrolments: Enrolments,
        settings: CourseSettings,
        remove: RemoveCourse,
        *,
        public_url: str | None = None,
    ) -> None:
        self._access = access
        self._accounts = accounts
        self._links = links
        self._memberships = memberships
        self._enrolments = enrolments
        self._settings = settings
        self._remove = remove
        self._public_url = public_url

    def routes(self) -> list[BaseRoute]:
        """The routes, ready for an application."""
        one, teacher = "/api/courses/{course}", Need.COURSE_TEACHER
        person = f"{one}/people/{{person}}"
        return [
            guarded("/api/courses", self.list_courses, ["GET"], Need.KNOWN),
            guarded("/api/courses", self.create, ["POST"], Need.TEACHER),
            guarded(one, self.course, ["GET"], Need.MEMBER),
            guarded(one, self.change, ["PATCH"], teacher),
            guarded(one, self.delete, ["DELETE"], teacher),
            guarded(f"{one}/join-code", self.renew_code, ["POST"], teacher),
            guarded(f"{one}/join-code", self.close_code, ["DELETE"], teacher),
            guarded(f"{one}/people", self.people, ["GET"], teacher),
            guarded(person, self.change_person, ["PATCH"], teacher),
            guarded(person, self.remove_person, ["DELETE"], teacher),
            guarded(f"{person}/reset", self.reset_person, ["POST"], teacher),
        ]

    async def list_courses(self, request: Request) -> Response:
        """The caller's courses and the open ones."""
        site = site_url(request, self._public_url)
        cards = await self._access.courses_of(person_of(request).user)
        return json_reply({"courses": [course_json(card, site) for card in cards]})

    async def create(self, request: Request) -> Response:
        """A new course, taught by the caller."""
        body = await json_body(request, NewCourse)
        course = await self._settings.create(person_of(request).user, body)
        return await self._told(request, course.id, 201)

    async def course(self, request: Request) -> Response:
        """One course."""
        return await self._told(request, member_of(request).course_id)

    async def change(self, request: Request) -> Response:
        """Other settings."""
        course_id = member_of(request).course_id
        await self._settings.change(course_id, await json_body(request, ChangedCourse))
        return await self._told(request, course_id)

    async def delete(self, request: Request) -> Response:
        """The end of a course that was archived before, when its title is given."""
        course = member_of(request).course
        body = await json_body(request, Confirmed)
        if course.archived_at is None:
            raise ConflictError(
                "Archive the course first; students see it no more then.",
                message_zh="请先归档课程，归档后学生将不再看到它。",
                reason="not_archived",
            )
        if body.confirm != course.title:
            raise BadRequestError(
                "Give the course's title as `confirm`: all its materials and records go with it.",
                message_zh="请在 `confirm` 中填写课程名称：其全部资料和记录将一并删除。",
                param="confirm",
                reason="not_confirmed",
            )
        await self._remove(course)
        return Response(status_code=204, headers={"Cache-Control": "no-store"})

    async def renew_code(self, request: Request) -> Response:
        """Another join code."""
        course = await self._memberships.renew_code(member_of(request).course_id)
        return await self._told(request, course.id)

    async def close_code(self, request: Request) -> Response:
        """No join code."""
        course = await self._memberships.close_code(member_of(request).course_id)
        return await self._told(request, course.id)

    async def people(self, request: Request) -> Response:
        """Who is in the course."""
        course = member_of(request).course
        people = await self._enrolments.people(course.id)
        return json_reply(
            {"people": [enrolled_json(one, shows_names=course.shows_names) for one in people]}
        )

    async def change_person(self, request: Request) -> Response:
        """Another role in the course; shut out of their account, or let in again."""
        member, person = member_of(request), request.path_params["person"]
        body = await json_body(request, ChangedPerson)
        found = await self._memberships.find(member.course_id, person)
        if body.is_disabled is not None:
            await self._memberships.check_own_student(member.user, found, alone=True)
        if body.role is not None:
            await self._memberships.set_role(member.course_id, person, body.role)
        if body.is_disabled is not None:
            await self._accounts.disable(UserId(person), body.is_disabled)
        found = await self._memberships.find(member.course_id, person)
        return json_reply(enrolled_json(found, shows_names=member.course.shows_names))

    async def remove_person(self, request: Request) -> Response:
        """Out of the course."""
        course_id, person = member_of(request).course_id, request.path_params["person"]
        await self._memberships.remove(course_id, person)
        return Response(status_code=204, headers={"Cache-Control": "no-store"})

    async def reset_person(self, request: Request) -> Response:
        """A link with which a student sets a new password."""
        member, person = member_of(request), request.path_params["person"]
        found = await self._memberships.find(member.course_id, person)
        await self._memberships.check_own_student(member.user, found, alone=False)
        issued = await self._links.issue("reset", role=found.user.role, user_id=person)
        return json_reply(link_json(issued, site_url(request, self._public_url)), 201)

    async def _told(self, request: Request, course_id: str, status: int = 200) -> Response:
        card = await self._access.card(person_of(request).user, course_id)
        return json_reply(course_json(card, site_url(request, self._public_url)), status)
