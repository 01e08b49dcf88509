"""`Access`: who may do what, in one place, and `guarded`, the only way a route of the API is made.

| who | may |
| --- | --- |
| nobody | the pages of entry, `/api/status`, log in, use a one-time link, look at a join code |
| guest | courses that are open: list, ask, read what students may; their own conversations |
| student | the same in the courses they are in; join by code |
| teacher of the course | its settings, people, materials, records, search trials |
| teacher elsewhere | make courses; here a student if enrolled, else a guest of an open course |

A guest is whoever has a session without an account: a visitor of a server that asks for no login,
and whoever holds an API key. A key is enrolled nowhere, so over the WebSocket it is a guest of the
open courses, with conversations of its own.

Refusals: 401 without a session; 404 for who is not in a course, as if it did not exist, so that ids
cannot be probed; 403 for who is in it but lacks the role.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import wraps
from typing import Literal
from urllib.parse import quote

from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from server.app.api_replies import Endpoint, told
from server.app.people import Person
from server.app.sessions import Sessions
from server.service.auth import UserId
from server.service.errors import ForbiddenError, NotFoundError, UnauthorizedError
from server.store.column_types import utc_now
from server.store.enrolments import CourseOf, Enrolments
from server.store.materials import Materials
from server.store.schema import Course, Material, MaterialState

__all__ = [
    "Access",
    "CourseCard",
    "GuardedRoute",
    "Member",
    "Need",
    "Person",
    "access_of",
    "guarded",
    "material_of",
    "member_of",
    "person_of",
]


class Need(StrEnum):
    """What a route asks of whoever calls it; `guarded` checks it before the endpoint runs."""

    OPEN = "open"
    """Nothing: not even a session."""
    KNOWN = "known"
    """A session."""
    OWNER = "owner"
    """A session; the endpoint finds only what is the caller's own."""
    MEMBER = "member"
    """To be in the course, as a guest of an open one at least: the course that the path names as
    `{course}`, or the one of the `{material}` that it names, which must be visible to them. Where
    it names neither, the endpoint asks `Access.member` itself."""
    TEACHER = "teacher"
    """A teacher's account."""
    COURSE_TEACHER = "course_teacher"
    """To teach the course that the path names, as for MEMBER; else the endpoint asks
    `Access.course_teacher` itself."""


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody's place in a course. `role` guest: not enrolled, the course is open. `pseudonym`
    is None for guests."""

    user: UserId
    course: Course
    role: Literal["guest", "student", "teacher"]
    pseudonym: str | None = None

    @property
    def course_id(self) -> str:
        return self.course.id

    @property
    def is_teacher(self) -> bool:
        """Teaches this course; sees what is hidden in it."""
        return self.role == "teacher"


@dataclass(frozen=True, slots=True)
class CourseCard:
    """A course in somebody's list. `num_materials`: those that they may see."""

    course: Course
    role: Literal["guest", "student", "teacher"]
    num_materials: int


class Access:
    """Owned by the event loop; reads the store, keeps no state of its own."""

    def __init__(self, sessions: Sessions, enrolments: Enrolments, materials: Materials) -> None:
        self._sessions = sessions
        self._enrolments = enrolments
        self._materials = materials

    def user(self, connection: HTTPConnection) -> Person:
        """Who a request comes from, by its cookie. Raises UnauthorizedError."""
        return self._sessions.person(connection)

    async def member(self, user: UserId, course: str) -> Member:
        """The user's place in the course with this id or slug. Raises NotFoundError for who is
        not in it."""
        member = _member(user, await self._enrolments.find(user, course))
        if member is None:
            raise NotFoundError("There is no such course.", param="course")
        return member

    async def course_teacher(self, user: UserId, course: str) -> Member:
        """`member`, who must teach the course. Raises ForbiddenError too."""
        return _teaching(await self.member(user, course))

    async def first_course(self, user: UserId) -> Member:
        """The course that is meant when a question names none: the oldest one of the user's own,
        else the oldest open one. Raises NotFoundError."""
        for found in await self._enrolments.courses_of(user):
            if member := _member(user, found):
                return member
        raise NotFoundError("You are in no course yet; join one by its code.", param="course")

    async def material(
        self, user: UserId, material_id: str, *, to_edit: bool = False
    ) -> tuple[Member, Material]:
        """A material with its text, for somebody who may see it; `to_edit`: who may change it.
        Raises NotFoundError, and ForbiddenError for a member who may only read."""
        material = await self._materials.get(material_id)
        member = None
        if material is not None:
            member = _member(user, await self._enrolments.find(user, material.course_id))
        if (
            material is None
            or member is None
            or not (member.is_teacher or is_visible(material, utc_now()))
        ):
            raise NotFoundError("There is no such material.", param="material")
        return (_teaching(member) if to_edit else member), material

    async def courses_of(self, user: UserId) -> list[CourseCard]:
        """The courses that the user is in, then the other open ones."""
        return [
            CourseCard(found.course, member.role, found.num_materials)
            for found in await self._enrolments.courses_of(user)
            if (member := _member(user, found))
        ]

    async def card(self, user: UserId, course_id: str) -> CourseCard:
        """One course of that list, by its id. Raises NotFoundError."""
        for card in await self.courses_of(user):
            if card.course.id == course_id:
                return card
        raise NotFoundError("There is no such course.", param="course")

    async def check(self, request: Request, need: Need) -> None:
        """Checks what a route needs and keeps what was found for `person_of`, `member_of` and
        `material_of`. Raises UnauthorizedError, NotFoundError, ForbiddenError."""
        if any("\0" in str(value) for value in request.path_params.values()):
            raise NotFoundError("There is no such address.")  # no id or name holds it
        if need is Need.OPEN:
            return
        person = request.state.person = self.user(request)
        if need is Need.TEACHER and not person.is_teacher:
            raise ForbiddenError("This is for teachers.")
        if need not in (Need.MEMBER, Need.COURSE_TEACHER):
            return
        is_for_teachers = need is Need.COURSE_TEACHER
        if named := request.path_params.get("course"):
            member = await self.member(person.user, named)
            request.state.member = _teaching(member) if is_for_teachers else member
        elif named := request.path_params.get("material"):
            request.state.member, request.state.material = await self.material(
                person.user, named, to_edit=is_for_teachers
            )


class GuardedRoute(Route):
    """A route of the API with what it needs."""

    need: Need


def guarded(
    path: str,
    endpoint: Endpoint,
    methods: Sequence[str],
    need: Need,
    *,
    is_page: bool = False,
) -> GuardedRoute:
    """A route whose endpoint runs only for those who have what it needs, and whose ServiceErrors
    are JSON replies. The application's `state.access` checks. `is_page`: a browser that has no
    session is sent to the login, and comes back."""

    @wraps(endpoint)
    async def checked(request: Request) -> Response:
        try:
            await access_of(request).check(request, need)
        except UnauthorizedError:
            if is_page and "text/html" in request.headers.get("accept", ""):
                return to_login(request)
            raise
        return await endpoint(request)

    route = GuardedRoute(path, told(checked), methods=list(methods))
    route.need = need
    return route


def to_login(request: Request) -> Response:
    """The way to the login, from where the reader comes back."""
    query = f"?{request.url.query}" if request.url.query else ""
    back = quote(request.url.path + query, safe="")
    headers = {"Cache-Control": "no-store"}
    return RedirectResponse(f"/login?next={back}", status_code=303, headers=headers)


def access_of(request: Request) -> Access:
    """The application's `Access`."""
    access: Access = request.app.state.access
    return access


def person_of(request: Request) -> Person:
    """Who a guarded request comes from (not on a route that is OPEN)."""
    person: Person = request.state.person
    return person


def member_of(request: Request) -> Member:
    """The place of the caller in the course that a guarded path names."""
    member: Member = request.state.member
    return member


def material_of(request: Request) -> Material:
    """The material that a guarded path names, with its text."""
    material: Material = request.state.material
    return material


def is_visible(material: Material, at: datetime) -> bool:
    """Whether students and guests may see a material at that moment."""
    is_due = material.visible_from is None or material.visible_from <= at
    return material.state == MaterialState.READY and not material.is_hidden and is_due


def _member(user: UserId, found: CourseOf | None) -> Member | None:
    if found is None:
        return None
    course, enrolment = found.course, found.enrolment
    if enrolment is not None and enrolment.role == "teacher":
        return Member(user, course, "teacher", enrolment.pseudonym)
    if course.archived_at is not None:
        return None
    if enrolment is not None:
        return Member(user, course, "student", enrolment.pseudonym)
    return Member(user, course, "guest") if course.is_open else None


def _teaching(member: Member) -> Member:
    if not member.is_teacher:
        raise ForbiddenError("Only teachers of the course may do this.")
    return member
