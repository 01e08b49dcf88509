"""Accounts over HTTP: log in and out, who I am, one-time links, joining a course.

PERSON is `{id, role: guest|student|teacher, name, login, is_guest}`; a guest's name and login are
null. COURSE is what `api_courses` says. Errors are as everywhere, `{error: {message, message_zh?,
type, param, code}}`; `param` names the field.

- POST /api/login (anybody) `{login, password}` → `{me: PERSON}` and the session cookie; 401
  `wrong_password` or `disabled`, 429 `too_many_tries` with `Retry-After` in seconds
- POST /api/logout (anybody) → 204 without the cookie; this browser only
- GET /api/me (session) → `{me: PERSON, asks_for_login: bool}`
- PATCH /api/me (account) `{name?, password?, old_password?}` → `{me: PERSON}`; a new password needs
  the old one and ends the other sessions
- DELETE /api/me (session) `{password}`, of a guest `{}` → 204: the account, its conversations and
  all else of theirs are deleted
- GET /api/links/{token} (anybody) → `{purpose: first_teacher|invite|reset, role, name, login}`, the
  last two of a reset only; uses nothing up; 404 `link_gone` when it is used, old or unknown
- POST /api/links/{token} (anybody) `{name, login, password}`, of a reset `{password}` → 201
  `{me: PERSON}` and the cookie; 409 `login_taken`
- POST /api/links (teacher) → 201 `{url, token, expires_at}`: an account for another teacher
- GET /api/join/{code} (anybody) → `{course: {id, slug, title, title_zh}, is_member: bool, me:
  PERSON or null}`; 404 `unknown_code`
- POST /api/join (anybody) `{code}` with an account; `{code, name, login, password}` makes a
  student's and logs in → `{course: COURSE, me: PERSON}`; 401 `login_needed` without either, 409
  `login_taken`

The pages behind a link are `/start/{token}` and `/join/{code}`. A password has 10 to 256 characters
(`password_too_short`, `password_too_long`), a login 2 to 100 without blanks (`bad_login`; its case
does not matter), a name 1 to 100 (`bad_name`). Codes may be typed with blanks, hyphens and in small
letters.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from server.app.access import Access, Need, guarded, person_of
from server.app.account_sessions import COOKIE_S
from server.app.accounts import Accounts, Entered, check_name
from server.app.api_replies import json_reply
from server.app.api_requests import client_address, json_body
from server.app.course_json import course_json, link_json, site_url
from server.app.links import Links
from server.app.memberships import Memberships
from server.app.people import Person
from server.app.sessions import Sessions
from server.app.throttle import Throttle
from server.service.auth import UserId
from server.service.errors import ForbiddenError, RateLimitedError, UnauthorizedError

GUESSES_PER_ADDRESS = 20
"""Links and codes that open nothing, a minute, after which the next ones wait."""

Erase = Callable[[UserId], Awaitable[None]]
"""Ends a user's sessions and answers and deletes all that is kept of them."""


T = TypeVar("T")


class Login(msgspec.Struct, frozen=True):
    login: str
    password: str


class NewSelf(msgspec.Struct, frozen=True):
    """What somebody says who sets up an account or a password."""

    password: str
    name: str = ""
    login: str = ""


class Join(msgspec.Struct, frozen=True):
    code: str
    name: str | None = None
    login: str | None = None
    password: str | None = None


class ChangedSelf(msgspec.Struct, frozen=True):
    name: str | None = None
    password: str | None = None
    old_password: str = ""


class Farewell(msgspec.Struct, frozen=True):
    password: str = ""


class AccountApi:
    """Owned by the event loop."""

    def __init__(
        self,
        access: Access,
        sessions: Sessions,
        accounts: Accounts,
        links: Links,
        memberships: Memberships,
        erase: Erase,
        *,
        asks_for_login: bool,
        public_url: str | None = None,
        guesses: Throttle | None = None,
    ) -> None:
        self._access = access
        self._sessions = sessions
        self._accounts = accounts
        self._links = links
        self._memberships = memberships
        self._erase = erase
        self._asks_for_login = asks_for_login
        self._public_url = public_url
        self._guesses = guesses or Throttle(GUESSES_PER_ADDRESS)

    def routes(self) -> list[BaseRoute]:
        """The routes, ready for an application."""
        return [
            guarded("/api/login", self.log_in, ["POST"], Need.OPEN),
            guarded("/api/logout", self.log_out, ["POST"], Need.OPEN),
            guarded("/api/me", self.me, ["GET"], Need.KNOWN),
            guarded("/api/me", self.change_me, ["PATCH"], Need.OWNER),
            guarded("/api/me", self.delete_me, ["DELETE"], Need.OWNER),
            guarded("/api/links", self.invite, ["POST"], Need.TEACHER),
            guarded("/api/links/{token}", self.link, ["GET"], Need.OPEN),
            guarded("/api/links/{token}", self.use_link, ["POST"], Need.OPEN),
            guarded("/api/join", self.join, ["POST"], Need.OPEN),
            guarded("/api/join/{code}", self.joinable, ["GET"], Need.OPEN),
        ]

    async def log_in(self, request: Request) -> Response:
        """Always a new session, whatever cookie the browser has had."""
        body = await json_body(request, Login)
        entered = await self._accounts.log_in(body.login, body.password, client_address(request))
        return await self._enter(request, entered)

    async def log_out(self, request: Request) -> Response:
        """Ends the session of this browser."""
        response = Response(status_code=204, headers={"Cache-Control": "no-store"})
        if token := self._sessions.token(request):
            await self._accounts.log_out(token)
        self._sessions.put(request, response, "", max_age_s=0)
        return response

    async def me(self, request: Request) -> Response:
        """Who the caller is."""
        me = person_of(request).as_json()
        return json_reply({"me": me, "asks_for_login": self._asks_for_login})

    async def change_me(self, request: Request) -> Response:
        """Another name, another password."""
        person, token = self._account(request)
        body = await json_body(request, ChangedSelf)
        name = None if body.name is None else check_name(body.name)
        if body.password is not None:
            await self._accounts.change_password(
                person,
                body.old_password,
                body.password,
                address=client_address(request),
                token=token,
            )
        if name is not None:
            person = await self._accounts.rename(person, name)
        return json_reply({"me": person.as_json()})

    async def delete_me(self, request: Request) -> Response:
        """Deletes all that is kept of the caller."""
        person = person_of(request)
        body = await json_body(request, Farewell)
        if not person.is_guest:
            await self._accounts.check_own_password(person, body.password, client_address(request))
        await self._memberships.leave_all(person.user, self._erase)
        response = Response(status_code=204, headers={"Cache-Control": "no-store"})
        self._sessions.put(request, response, "", max_age_s=0)
        return response

    async def invite(self, request: Request) -> Response:
        """A link to an account for another teacher."""
        issued = await self._links.issue("invite")
        return json_reply(link_json(issued, site_url(request, self._public_url)), 201)

    async def link(self, request: Request) -> Response:
        """What a link is for; looking does not use it up."""
        link, user = await self._guess(request, self._links.find(request.path_params["token"]))
        return json_reply(
            {
                "purpose": link.purpose,
                "role": link.role if user is None else user.role,
                "name": user.name if user else None,
                "login": user.login if user else None,
            }
        )

    async def use_link(self, request: Request) -> Response:
        """Sets up an account or a password, and enters."""
        body = await json_body(request, NewSelf)
        link, _ = await self._guess(request, self._links.find(request.path_params["token"]))
        if link.purpose == "reset":
            entered = await self._accounts.reset(link, body.password)
        else:
            entered = await self._accounts.register(
                body.name, body.login, body.password, role=link.role, link=link
            )
        return await self._enter(request, entered, 201)

    async def joinable(self, request: Request) -> Response:
        """What a code opens."""
        course = await self._guess(
            request, self._memberships.course_of_code(request.path_params["code"])
        )
        person = self._known(request)
        cards = await self._access.courses_of(person.user) if person else []
        return json_reply(
            {
                "course": {
                    "id": course.id,
                    "slug": course.slug,
                    "title": course.title,
                    "title_zh": course.title_zh,
                },
                "is_member": any(
                    card.course.id == course.id and card.role != "guest" for card in cards
                ),
                "me": person.as_json() if person else None,
            }
        )

    async def join(self, request: Request) -> Response:
        """Comes into a course by its code, with an account or by making one."""
        body = await json_body(request, Join)
        course = await self._guess(request, self._memberships.course_of_code(body.code))
        person, entered = self._known(request), None
        if person is None or person.is_guest:
            if body.login is None or body.password is None:
                raise UnauthorizedError(
                    "Log in, or give a name, a login and a password for a new account.",
                    message_zh="请先登录，或填写姓名、用户名和密码以创建账号。",
                    reason="login_needed",
                )
            entered = await self._accounts.register(
                body.name or "", body.login, body.password, role="student"
            )
            person = entered.person
        await self._memberships.join(person, course)
        card = await self._access.card(person.user, course.id)
        site = site_url(request, self._public_url)
        response = json_reply({"course": course_json(card, site), "me": person.as_json()})
        if entered is not None:
            self._sessions.put(request, response, entered.token, max_age_s=COOKIE_S)
        return response

    async def _enter(self, request: Request, entered: Entered, status: int = 200) -> Response:
        if old := self._sessions.token(request):
            await self._accounts.log_out(old)
        response = json_reply({"me": entered.person.as_json()}, status)
        self._sessions.put(request, response, entered.token, max_age_s=COOKIE_S)
        return response

    async def _guess(self, request: Request, looking: Coroutine[Any, Any, T]) -> T:
        """What is looked up by a word that must be known; wrong ones are counted."""
        address = client_address(request)
        try:
            self._guesses.enter(address)
        except RateLimitedError:
            looking.close()
            raise
        found = await looking
        self._guesses.take_back(address)
        return found

    def _known(self, request: Request) -> Person | None:
        try:
            return self._access.user(request)
        except UnauthorizedError:
            return None

    def _account(self, request: Request) -> tuple[Person, str]:
        person, token = person_of(request), self._sessions.token(request)
        if person.is_guest or token is None:
            raise ForbiddenError("A guest has no account to change.")
        return person, token
