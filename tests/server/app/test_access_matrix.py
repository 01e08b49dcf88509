"""Every route and every message of the application × everybody who might use it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from starlette.routing import Route

from server.app.access import GuardedRoute, Need
from server.service.auth import Access, UserId
from server.service.key_store import KeyFile
from server.service.messages import ClientMessage
from server.store.courses import Courses
from server.store.enrolments import Enrolments
from server.store.schema import Course, Enrolment, Material
from server.store.users import Users
from tests.server.app.asgi_socket import AppSocket, socket_of
from tests.server.app.site import ALICE, Site, new_key, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

OPEN = {
    ("GET", "/api/status"),
    ("POST", "/api/login"),
    ("POST", "/api/logout"),
    ("GET", "/api/links/{token}"),
    ("POST", "/api/links/{token}"),
    ("GET", "/api/join/{code}"),
    ("POST", "/api/join"),
}
"""What needs no session. Whatever is added here is a decision."""

OUTSIDERS = ("guest", "student elsewhere", "teacher elsewhere", "removed")
UNKNOWN = ("nobody", "disabled", "logged out")
EVERYBODY = (*UNKNOWN, *OUTSIDERS, "student", "teacher")
NO_ACCOUNT = {("PATCH", "/api/me")}
"""Refused to guests by their endpoints, who have no account to change."""


@dataclass
class World:
    """A course that is not open, one elsewhere that is not either, and people in and around it."""

    site: Site
    course: str
    people: dict[str, UserId]

    @classmethod
    async def of(cls, site: Site) -> World:
        courses, enrolments = Courses(site.app.database), Enrolments(site.app.database)
        people = {
            name: await site.account(
                "teacher" if "teacher" in name else "student", f"person{number}"
            )
            for number, name in enumerate(EVERYBODY)
            if name not in ("nobody", "guest")
        }
        people["guest"] = ALICE
        made = []
        for slug, teacher in (("closed", "teacher"), ("elsewhere", "teacher elsewhere")):
            place = Enrolment(user_id=people[teacher], role="teacher", pseudonym="Student T")
            made.append(await courses.add(Course(slug=slug, title=slug, suggestions=[]), place))
        here, elsewhere = made
        for name in ("student", "removed", "disabled", "logged out"):
            await enrolments.enrol(here.id, people[name], "student")
        await enrolments.enrol(elsewhere.id, people["student elsewhere"], "student")
        await enrolments.remove(here.id, people["removed"])
        await site.app.accounts.disable(people["disabled"], True)
        await site.app.accounts.log_out(site.tokens[people["logged out"]])
        return cls(site, here.id, people)

    def session(self, who: str) -> str | None:
        return None if who == "nobody" else self.site.session(self.people[who])

    async def log_in(self, who: str) -> None:
        """A fresh session: one of the routes logs out."""
        if who not in (*UNKNOWN, "guest"):
            user = await Users(self.site.app.database).get(self.people[who])
            assert user is not None
            self.site.tokens[self.people[who]] = await self.site.app.account_sessions.begin(user)

    async def path(self, route: Route, number: int) -> str:
        """The route's address, with a fresh material where it names one."""
        values = {"course": self.course, "person": self.people["removed"]}
        if "{material}" in route.path:
            async with self.site.app.database.transaction() as session:
                material = Material(
                    course_id=self.course,
                    name=f"{number}.md",
                    title="Staff",
                    text="words",
                    content_sha256=f"{number:064}",
                )
                session.add(material)
                await session.flush()
                values["material"] = material.id
        path = route.path
        for name in route.param_convertors:
            path = path.replace(f"{{{name}}}", values.get(name, "unknown-0001"))
        return path


def allowed(need: Need, who: str) -> int:
    """0 where somebody passes, else the status of the refusal."""
    if need is Need.OPEN:
        return 0
    if who in UNKNOWN:
        return 401
    if need in (Need.MEMBER, Need.COURSE_TEACHER) and who in OUTSIDERS:
        return 404
    if need is Need.COURSE_TEACHER and who == "student":
        return 403
    if need is Need.TEACHER and "teacher" not in who:
        return 403
    return 0


async def test_every_route_asks_for_what_it_needs(tmp_path: Path, database_url: str) -> None:
    async with open_site(tmp_path / "data", database_url=database_url) as site:
        world = await World.of(site)
        routes = [route for route in site.app.routes if isinstance(route, GuardedRoute)]
        assert len(routes) > 25
        wrong = []
        for number, route in enumerate(routes):
            (method,) = (route.methods or set()) - {"HEAD"}
            for at, who in enumerate(EVERYBODY):
                path = await world.path(route, number * 100 + at)
                await world.log_in(who)
                async with site.client(world.people.get(who, ALICE)) as client:
                    if who == "nobody":
                        client.cookies.clear()
                    reply = await client.request(method, path, json={})
                expected = allowed(route.need, who)
                if (method, route.path) in NO_ACCOUNT and who == "guest":
                    expected = 403
                names_one = {"course", "material"} & set(route.param_convertors)
                if route.need in (Need.MEMBER, Need.COURSE_TEACHER) and not names_one:
                    # The endpoint finds out, of something that there is not.
                    expected = expected if expected == 401 else 404
                    is_right = reply.status_code == expected
                elif expected == 0:
                    is_right = reply.status_code < 500 and not _is_refusal(reply)
                    is_right = is_right or route.need is Need.OPEN
                else:
                    is_right = reply.status_code == expected
                if not is_right:
                    wrong.append((method, route.path, who, expected, reply.status_code, reply.text))
        assert wrong == []


def _is_refusal(reply: Any) -> bool:
    if reply.status_code in (401, 403):
        error = reply.json()["error"]
        # One's own password is asked for, and not given.
        return error["code"] not in ("wrong_password",)
    missing = ("There is no such course.", "There is no such material.")
    return reply.status_code == 404 and reply.json()["error"]["message"] in missing


async def test_no_route_is_without_a_need(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        api = [route for route in site.app.routes if getattr(route, "path", "").startswith("/api")]
        assert all(isinstance(route, GuardedRoute) for route in api)
        pages = [route for route in site.app.routes if route not in api]
        for route in pages:
            assert isinstance(route, Route)
            assert route.methods == {"GET", "HEAD"}, "a page changes nothing"
        found = {
            (method, route.path)
            for route in api
            if isinstance(route, GuardedRoute) and route.need is Need.OPEN
            for method in (route.methods or set()) - {"HEAD"}
        }
        assert found == OPEN


async def test_an_open_course_is_for_guests_too_and_still_not_theirs_to_change(
    tmp_path: Path,
) -> None:
    async with open_site(tmp_path) as site:
        student = await site.account("student", "ana")
        for user in (ALICE, student):
            async with site.client(user) as client:
                (course,) = (await client.get("/api/courses")).json()["courses"]
                assert course["role"] == "guest"
                one = f"/api/courses/{course['id']}"
                assert (await client.get(one)).json()["slug"] == "demo"
                assert (await client.patch(one, json={})).status_code == 403
                assert (await client.get("/api/courses/demo/people")).status_code == 403


Asked = dict[str, str]

MESSAGES: dict[str, dict[str, str]] = {
    "ask": {"text": "When?", "course": "{course}"},
    "continue": {"message": "{message}"},
    "regenerate": {"message": "{message}"},
    "edit": {"message": "{user_message}", "text": "When exactly?"},
    "carry": {"message": "{message}"},
    "undo": {"message": "{message}"},
    "count": {"text": "When?", "conversation": "{conversation}"},
    "feedback": {"message": "{message}", "value": "up"},
    "attach": {"run": "{run}"},
    "cancel": {"run": "{run}"},
    "chat": {},
    "hello": {},
    "ping": {},
}
FOREIGN = {"continue": "not_found", "regenerate": "not_found", "edit": "not_found"} | {
    "carry": "not_found",
    "undo": "not_found",
    "count": "not_found",
    "feedback": "not_found",
    "attach": "resume_gone",
    "cancel": "not_found",
}
"""What others hear of somebody's answer: there is none."""


def test_no_message_is_forgotten() -> None:
    tags = {kind.__struct_config__.tag for kind in get_args(ClientMessage)}
    assert tags == set(MESSAGES)


def refusal(type: str, who: str) -> str | None:
    """The error that somebody hears who is not the owner of the answer but where they are
    "student" or, since then removed from the course, "removed"; None: no refusal."""
    if type in ("hello", "ping"):
        return None
    if type == "chat":
        return None if "teacher" in who else "forbidden"
    is_member = who in ("student", "teacher")
    if type == "ask":
        return None if is_member else "not_found"
    if who == "student":
        return None
    if who == "removed" and type in ("undo", "feedback", "attach", "cancel"):
        return None  # theirs, whatever they may ask now
    return FOREIGN[type]


async def _ask(site: Site, socket: AppSocket, course: str) -> Asked:
    await socket.send("ask", id=new_key(), text="When?", course=course)
    accepted = await socket.until("accepted", "error")
    assert accepted["type"] == "accepted", accepted
    await socket.until("finish")
    return {name: accepted[name] for name in ("conversation", "message", "user_message", "run")}


@pytest.mark.parametrize("who", EVERYBODY)
async def test_every_message_asks_for_what_it_needs(tmp_path: Path, who: str) -> None:
    # With a key the API is closed to those without one, and the page is not.
    KeyFile(tmp_path / "api-keys.json").create("reader", [Access.CHAT])
    async with open_site(tmp_path, max_messages_per_s=1000.0) as site:
        world = await World.of(site)
        owner = who if who in ("student", "removed") else "student"
        enrolments = Enrolments(site.app.database)
        await enrolments.enrol(world.course, world.people[owner], "student")
        async with socket_of(site, world.session(owner)) as socket:
            ids = await _ask(site, socket, world.course) | {"course": world.course}
        if owner == "removed":
            await enrolments.remove(world.course, world.people[owner])
        async with socket_of(site, world.session(who)) as socket:
            for type, fields in MESSAGES.items():
                filled: dict[str, Any] = {
                    name: value.format_map(ids) for name, value in fields.items()
                }
                if type == "chat":
                    filled["messages"] = [{"role": "user", "content": "hi"}]
                expected = refusal(type, who)
                await socket.send(type, id=new_key(), **filled)
                if type == "cancel" and expected is None and who not in UNKNOWN:
                    await socket.send("ping")  # what goes well has no reply
                told = await socket.until(
                    *("error", "accepted", "pong", "welcome", "finish", "done", "counted")
                )
                if who in UNKNOWN:
                    assert told["type"] in ("error", "close"), type
                    assert told.get("code") in ("unauthorized", 1008), told
                    if told["type"] == "close":
                        break
                    continue
                code = told.get("code") if told["type"] == "error" else None
                if expected is None:  # the answer has ended: nothing to continue, or to stop
                    assert code in (None, "bad_request"), (type, told)
                    if told["type"] == "accepted":
                        await socket.until("finish")
                else:
                    assert code == expected, (type, told)


async def test_a_key_is_a_guest_of_open_courses(tmp_path: Path) -> None:
    key = KeyFile(tmp_path / "api-keys.json").create("reader", [Access.CHAT])
    async with open_site(tmp_path) as site:
        world = await World.of(site)
        async with socket_of(site, None) as socket:
            await socket.send("hello", token=key)
            assert (await socket.until("welcome", "error"))["type"] == "welcome"
            await socket.send("ask", id="q1", text="When?", course=world.course)
            assert (await socket.until("error", "accepted"))["code"] == "not_found"
            await socket.send("ask", id="q2", text="When?", course="demo")
            assert (await socket.until("error", "accepted"))["type"] == "accepted"
            await socket.until("finish")
            await socket.send("chat", id="q3", messages=[{"role": "user", "content": "hi"}])
            assert (await socket.until("error", "accepted"))["type"] == "accepted"
