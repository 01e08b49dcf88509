"""Accounts over HTTP: log in, links, joining, one's own data."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher

from server.app.passwords import Passwords
from server.service.auth import COOKIE_NAME, UserId
from server.store.courses import Courses
from server.store.enrolments import Enrolments
from tests.server.app.site import ALICE, PASSWORD, Site, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


@asynccontextmanager
async def browser(
    site: Site, base_url: str = "http://127.0.0.1"
) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that has never been here."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(site.app), base_url=base_url
    ) as client:
        yield client


def error_of(reply: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = reply.json()["error"]
    return error


async def log_in(client: httpx.AsyncClient, login: str, password: str = PASSWORD) -> httpx.Response:
    return await client.post("/api/login", json={"login": login, "password": password})


async def demo_code(site: Site) -> str:
    """The join code of the site's own course."""
    courses = Courses(site.app.database)
    course = await courses.get("demo")
    assert course is not None
    await courses.change(course.id, {"join_code": "ABCD2345"})
    return "ABCD2345"


async def test_a_log_in_makes_a_new_session_and_a_log_out_ends_it(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, browser(site) as client:
        user = await site.account("student", "Ana")
        await client.get("/")
        guest = client.cookies[COOKIE_NAME]
        reply = await log_in(client, " ANA ")
        assert reply.status_code == 200, reply.text
        assert reply.json() == {
            "me": {"id": user, "role": "student", "name": "Ana", "login": "ana", "is_guest": False}
        }
        cookie = reply.headers["set-cookie"]
        assert "HttpOnly; SameSite=Lax" in cookie
        assert "Secure" not in cookie
        token = client.cookies[COOKIE_NAME]
        assert token not in (guest, site.tokens[user])
        assert (await client.get("/api/me")).json()["me"]["id"] == user
        # Another log-in from the same browser leaves no second key behind.
        await log_in(client, "ana")
        second = client.cookies[COOKIE_NAME]
        assert site.app.service.auth.user_from_session(token) is None
        gone = await client.post("/api/logout")
        assert gone.status_code == 204
        assert COOKIE_NAME not in client.cookies
        client.cookies[COOKIE_NAME] = second
        assert (await client.get("/api/me")).status_code == 401
        async with site.client(user) as other:
            assert (await other.get("/api/me")).status_code == 200, "elsewhere it goes on"


async def test_over_tls_the_cookie_is_secure(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, browser(site, "https://127.0.0.1") as client:
        await site.account("student", "ana")
        assert (await log_in(client, "ana")).headers["set-cookie"].endswith("; Secure")


@pytest.mark.parametrize(("login", "password"), [("ana", "wrong horse"), ("nobody", PASSWORD)])
async def test_a_wrong_login_and_a_wrong_password_are_told_alike(
    tmp_path: Path, login: str, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_site(tmp_path) as site, browser(site) as client:
        await site.account("student", "ana")
        verified: list[str] = []
        verify = PasswordHasher.verify

        def counted(hasher: PasswordHasher, kept: str, given: bytes) -> bool:
            verified.append(kept)
            return verify(hasher, kept, given)

        monkeypatch.setattr(PasswordHasher, "verify", counted)
        reply = await log_in(client, login, password)
        assert reply.status_code == 401
        error = error_of(reply)
        assert error["code"] == "wrong_password"
        assert error["message"] == "The login or the password is wrong."
        assert error["message_zh"] == "用户名或密码错误。"
        assert "set-cookie" not in reply.headers
        assert len(verified) == 1, "the same work, whether the login is known or not"
        assert not Passwords().is_outdated(verified[0]), "with the same parameters"


async def test_too_many_failures_wait(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, browser(site) as client:
        await site.account("student", "ana")
        await site.account("student", "ben")
        for _ in range(5):
            assert (await log_in(client, "ana", "wrong horse")).status_code == 401
        refused = await log_in(client, "ana")
        assert refused.status_code == 429
        assert error_of(refused)["code"] == "too_many_tries"
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert (await log_in(client, "ben")).status_code == 200, "somebody else may"
        for number in range(15):
            await log_in(client, f"guess{number}", "wrong horse")
        assert (await log_in(client, "ben")).status_code == 429, "not from this address"
        elsewhere = {"x-forwarded-for": "203.0.113.9"}
        reply = await client.post(
            "/api/login", json={"login": "ben", "password": PASSWORD}, headers=elsewhere
        )
        assert reply.status_code == 200, "a proxy on this machine says whom it speaks for"


async def test_the_first_teacher_s_link_works_once(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, browser(site) as client:
        link = site.app.first_link
        assert link is not None
        path = f"/api/links/{link.token}"
        for _ in range(3):  # a preview looks, and uses nothing up
            looked = await client.get(path)
            assert looked.json() == {
                "purpose": "first_teacher",
                "role": "teacher",
                "name": None,
                "login": None,
            }
        short = {"name": "Dr. Wu", "login": "wu", "password": "too short"}
        refused = await client.post(path, json=short)
        assert (refused.status_code, error_of(refused)["param"]) == (400, "password")
        made = await client.post(path, json=short | {"password": PASSWORD})
        assert made.status_code == 201, made.text
        assert made.json()["me"]["role"] == "teacher"
        (course,) = (await client.get("/api/courses")).json()["courses"]
        assert course["role"] == "teacher", "the courses that nobody taught are hers"
        again = await client.post(path, json=short | {"login": "x2", "password": PASSWORD})
        assert (again.status_code, error_of(again)["code"]) == (404, "link_gone")
        assert (await client.get(path)).status_code == 404
    async with open_site(tmp_path) as site:
        assert site.app.first_link is None


async def test_a_restart_makes_a_new_first_link(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        assert site.app.first_link is not None
        old = site.app.first_link.token
    async with open_site(tmp_path) as site, browser(site) as client:
        assert (await client.get(f"/api/links/{old}")).status_code == 404
        assert site.app.first_link is not None
        assert (await client.get(f"/api/links/{site.app.first_link.token}")).status_code == 200


async def test_a_taken_login_leaves_the_link(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, browser(site) as client:
        teacher = await site.account("teacher", "wu")
        async with site.client(teacher) as own:
            invited = await own.post("/api/links")
        assert invited.status_code == 201
        url, token = invited.json()["url"], invited.json()["token"]
        assert url == f"http://127.0.0.1/start/{token}"
        wanted = {"name": "Wú", "login": "ＷＵ", "password": PASSWORD}
        taken = await client.post(f"/api/links/{token}", json=wanted)
        assert (taken.status_code, error_of(taken)["code"]) == (409, "login_taken")
        made = await client.post(f"/api/links/{token}", json=wanted | {"login": "wu2"})
        assert (made.status_code, made.json()["me"]["role"]) == (201, "teacher")


async def test_a_student_joins_by_code_and_makes_an_account(tmp_path: Path) -> None:
    async with open_site(tmp_path, login="on") as site, browser(site) as client:
        code = await demo_code(site)
        seen = await client.get("/api/join/abcd-2345")
        assert seen.json()["course"]["title"] == "Demo"
        assert (seen.json()["is_member"], seen.json()["me"]) == (False, None)
        bare = await client.post("/api/join", json={"code": code})
        assert (bare.status_code, error_of(bare)["code"]) == (401, "login_needed")
        new = {"code": " abcd 2345 ", "name": "李 雷", "login": "lilei", "password": PASSWORD}
        joined = await client.post("/api/join", json=new)
        assert joined.status_code == 200, joined.text
        assert joined.json()["course"]["role"] == "student"
        assert "join_code" not in joined.json()["course"]
        assert joined.json()["me"]["name"] == "李 雷"
        assert (await client.get("/api/join/ABCD2345")).json()["is_member"] is True
        twice = await client.post("/api/join", json={"code": code})
        assert twice.status_code == 200, "whoever is in it stays in it"


async def test_codes_cannot_be_tried_out(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, browser(site) as client:
        code = await demo_code(site)
        for number in range(20):
            wrong = await client.get(f"/api/join/WRONG{number:03}")
            assert (wrong.status_code, error_of(wrong)["code"]) == (404, "unknown_code")
        assert (await client.get(f"/api/join/{code}")).status_code == 429
        assert (await client.post("/api/join", json={"code": code})).status_code == 429
        assert (await client.get("/api/links/whatever")).status_code == 429


async def test_a_new_password_ends_the_other_sessions(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, browser(site) as elsewhere:
        user = await site.account("student", "ana")
        await log_in(elsewhere, "ana")
        async with site.client(user) as client:
            change = {"password": "a better horse", "old_password": "wrong horse"}
            refused = await client.patch("/api/me", json=change)
            assert refused.status_code == 401
            half = change | {"old_password": PASSWORD, "name": ""}
            assert (await client.patch("/api/me", json=half)).status_code == 400
            changed = await client.patch("/api/me", json=change | {"old_password": PASSWORD})
            assert changed.status_code == 200, changed.text
            assert (await client.get("/api/me")).status_code == 200
            renamed = await client.patch("/api/me", json={"name": " Ana  B. "})
            assert renamed.json()["me"]["name"] == "Ana B."
            assert (await client.get("/api/me")).json()["me"]["name"] == "Ana B."
        assert (await elsewhere.get("/api/me")).status_code == 401
        assert (await log_in(elsewhere, "ana")).status_code == 401
        assert (await log_in(elsewhere, "ana", "a better horse")).status_code == 200


async def test_a_guest_has_no_account_to_change(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, site.client(ALICE) as client:
        me = (await client.get("/api/me")).json()
        assert me == {
            "me": {"id": ALICE, "role": "guest", "name": None, "login": None, "is_guest": True},
            "asks_for_login": False,
        }
        assert (await client.patch("/api/me", json={"name": "x"})).status_code == 403


async def test_everything_of_a_person_goes_when_they_say_so(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        user = await site.account("student", "ana", "demo")
        async with site.client(user) as client:
            refused = await client.request("DELETE", "/api/me", json={"password": "wrong horse"})
            assert refused.status_code == 401
            reply = await client.request("DELETE", "/api/me", json={"password": PASSWORD})
            assert reply.status_code == 204, reply.text
            client.cookies[COOKIE_NAME] = site.tokens[user]
            assert (await client.get("/api/me")).status_code == 401
            assert (await log_in(client, "ana")).status_code == 401
        fresh = await site.account("student", "ana")
        assert fresh != user, "the login is free again"


async def test_a_course_s_only_teacher_stays(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        ana, ben = (
            await site.account("teacher", "ana", "demo"),
            await site.account("teacher", "ben"),
        )
        async with site.client(ana) as client:
            refused = await client.request("DELETE", "/api/me", json={"password": PASSWORD})
            assert refused.status_code == 409
            assert "Demo" in refused.json()["error"]["message"]
            assert (await client.get("/api/me")).status_code == 200
        demo = await Courses(site.app.database).get("demo")
        assert demo is not None
        await Enrolments(site.app.database).enrol(demo.id, ben, "teacher")
        async with site.client(ana) as client:
            gone = await client.request("DELETE", "/api/me", json={"password": PASSWORD})
            assert gone.status_code == 204, gone.text


async def test_a_guest_s_data_goes_too(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        await site.answer()
        async with site.client(ALICE) as client:
            assert (await client.get("/api/conversations")).json()["conversations"]
            assert (await client.request("DELETE", "/api/me")).status_code == 204
            client.cookies[COOKIE_NAME] = site.session(ALICE)
            assert (await client.get("/api/conversations")).json()["conversations"] == []


async def test_a_wrong_body_names_its_field(tmp_path: Path) -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("/api/login", {"login": "ana"}, "password"),
        ("/api/login", {"login": 3, "password": "x"}, "login"),
        ("/api/join", {"code": None}, "code"),
        ("/api/links/x", {"name": "x"}, "password"),
    ]
    async with open_site(tmp_path) as site, browser(site) as client:
        for path, body, param in wrong:
            reply = await client.post(path, json=body)
            assert (reply.status_code, error_of(reply)["param"]) == (400, param)
            broken = await client.post(path, content=b'{"login": "\xff"')
            assert broken.status_code == 400
            large = await client.post(path, content=b" " * 70_000)
            assert large.status_code == 413


async def test_what_cannot_be_an_account(tmp_path: Path) -> None:
    wrong = [
        ("name", ""),
        ("name", "x" * 101),
        ("name", "a\0b"),
        ("login", "a"),
        ("login", "a b"),
        ("login", "a\0b"),
        ("login", "ﷺ" * 20),  # 18 characters each, once they are written out
        ("password", "x" * 9),
        ("password", "x" * 257),
    ]
    async with open_site(tmp_path) as site, browser(site) as client:
        code = await demo_code(site)
        for field, value in wrong:
            new = {"code": code, "name": "Ana", "login": "ana", "password": PASSWORD, field: value}
            refused = await client.post("/api/join", json=new)
            assert (refused.status_code, error_of(refused)["param"]) == (400, field)
            assert error_of(refused)["message_zh"]
        assert (await log_in(client, "a\0b")).status_code == 401
        assert (await log_in(client, "ana")).status_code == 401, "none of them was made"


async def test_sessions_outlive_a_restart(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        user = await site.account("student", "ana")
        token = site.tokens[user]
    async with open_site(tmp_path, secret="another secret for tests") as site:
        site.tokens[user] = token
        async with site.client(user) as client:
            assert (await client.get("/api/me")).json()["me"]["id"] == user
        async with site.client(UserId(user[::-1])) as client:
            assert (await client.get("/api/me")).status_code == 401


async def test_nothing_secret_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "server")
    async with open_site(tmp_path) as site, browser(site) as client:
        code = await demo_code(site)
        assert site.app.first_link is not None
        link = site.app.first_link.token
        wanted = {"name": "Wu", "login": "wu", "password": PASSWORD}
        await client.get(f"/api/join/{code}")
        await client.get(f"/join/{code}")
        await client.get(f"/start/{link}")
        await client.post(f"/api/links/{link}", json=wanted)
        token = client.cookies[COOKIE_NAME]
        await client.post("/api/join", json={"code": code})
        for text in (f"/nowhere/{link}", f"/api/links/{link}/x", "/api/links/" + link + "%00"):
            assert (await client.get(text)).status_code == 404
    lines = [repr(vars(line)) for line in caplog.records if line.name.startswith("server")]
    assert len(lines) >= 8
    for secret in (code, link, token, PASSWORD):
        assert not any(secret in line for line in lines), secret
