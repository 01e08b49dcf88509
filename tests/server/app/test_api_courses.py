"""Courses and their people over HTTP, and what it means for sockets that are open."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from server.service.auth import UserId
from server.store.database import Database
from tests.server.app.asgi_socket import socket_of
from tests.server.app.site import ALICE, PASSWORD, QUESTION, Site, new_key, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

TERM = {"starts_on": "2026-09-07", "num_weeks": 16, "timezone": "Asia/Shanghai"}


async def make_course(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    reply = await client.post("/api/courses", json={"title": "Networks", **fields})
    assert reply.status_code == 201, reply.text
    course: dict[str, Any] = reply.json()
    return course


async def join(site: Site, user: UserId, code: str) -> httpx.Response:
    async with site.client(user) as client:
        return await client.post("/api/join", json={"code": code})


async def test_a_course_of_one_s_own(tmp_path: Path, database_url: str) -> None:
    async with open_site(tmp_path / "site", database_url=database_url) as site:
        teacher = await site.account("teacher", "wu")
        async with site.client(teacher) as client:
            made = await make_course(client, title=" Computer  Networks ", title_zh="", **TERM)
            assert made["title"] == "Computer Networks"
            assert made["title_zh"] is None
            assert made["slug"].startswith("computer-networks-")
            assert (made["role"], made["num_materials"], made["is_open"]) == ("teacher", 0, False)
            assert made["join_url"] == f"http://127.0.0.1/join/{made['join_code']}"
            assert {name: made[name] for name in TERM} == TERM
            one = f"/api/courses/{made['slug']}"
            assert (await client.get(one)).json() == made
            own, sample = (await client.get("/api/courses")).json()["courses"]
            assert own == made
            assert (sample["slug"], sample["role"]) == ("demo", "guest")
            changed = await client.patch(
                one,
                json={
                    "title_zh": "计算机网络",
                    "shows_names": True,
                    "retention_days": 365,
                    "num_weeks": None,
                    "suggestions": [{"en": " What is  CRC? ", "zh": "什么是 CRC？"}, {"en": " "}],
                },
            )
            assert changed.status_code == 200, changed.text
            expected = made | {
                "title_zh": "计算机网络",
                "shows_names": True,
                "retention_days": 365,
                "num_weeks": None,
                "suggestions": [{"en": "What is CRC?", "zh": "什么是 CRC？"}],
            }
            assert changed.json() == expected
        async with site.client(ALICE) as client:
            assert (await client.get(one)).status_code == 404


WRONG_SETTINGS: list[tuple[str, object]] = [
    ("title", " "),
    ("title", "x" * 201),
    ("title", "a\0b"),
    ("title", None),
    ("language", "fr"),
    ("num_weeks", 0),
    ("num_weeks", 61),
    ("starts_on", "in May"),
    ("timezone", "../../etc/passwd"),
    ("timezone", "Mars/Olympus"),
    ("retention_days", 0),
    ("suggestions", [{"en": "x" * 301}]),
    ("suggestions", [{"en": "x"}] * 13),
    ("is_open", "yes"),
]


async def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        teacher = await site.account("teacher", "wu", "demo")
        async with site.client(teacher) as client:
            before = (await client.get("/api/courses/demo")).json()
            for field, value in WRONG_SETTINGS:
                refused = await client.patch("/api/courses/demo", json={field: value})
                assert refused.status_code == 400, (field, value, refused.text)
                assert refused.json()["error"]["param"] == field
            assert (await client.get("/api/courses/demo")).json() == before


async def test_a_slug_that_cannot_be_one(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        teacher = await site.account("teacher", "wu")
        async with site.client(teacher) as client:
            for slug in ("", "-a", "a" * 65, "A", "网络", "a" * 26, "a/b"):
                refused = await client.post("/api/courses", json={"title": "x", "slug": slug})
                assert refused.status_code == 400, slug
                assert refused.json()["error"]["param"] == "slug"


async def test_a_slug_is_one_course_s(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        teacher = await site.account("teacher", "wu")
        async with site.client(teacher) as client:
            assert (await make_course(client, slug="networks", title="计网"))["slug"] == "networks"
            taken = await client.post("/api/courses", json={"title": "x", "slug": "networks"})
            assert (taken.status_code, taken.json()["error"]["code"]) == (409, "slug_taken")
            first = await make_course(client, title="计算机网络")
            second = await make_course(client, title="计算机网络")
            assert first["slug"] != second["slug"]


async def test_a_join_code_is_renewed_and_closed(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        teacher = await site.account("teacher", "wu")
        ana, ben = [await site.account("student", name) for name in ("ana", "ben")]
        async with site.client(teacher) as client:
            course = await make_course(client)
            one = f"/api/courses/{course['id']}"
            assert (await join(site, ana, course["join_code"])).status_code == 200
            renewed = (await client.post(f"{one}/join-code")).json()
            assert renewed["join_code"] not in (None, course["join_code"])
            assert (await join(site, ben, course["join_code"])).status_code == 404
            closed = (await client.delete(f"{one}/join-code")).json()
            assert closed["join_code"] is closed["join_url"] is None
            assert (await join(site, ben, renewed["join_code"])).status_code == 404
        async with site.client(ana) as client:
            assert (await client.get(one)).json()["role"] == "student", "who is in stays in"


async def test_people_are_listed_promoted_and_removed(tmp_path: Path, database_url: str) -> None:
    async with open_site(tmp_path / "site", database_url=database_url) as site:
        wu, li = [await site.account("teacher", name) for name in ("wu", "li")]
        ana = await site.account("student", "ana")
        async with site.client(wu) as client:
            course = await make_course(client)
            one = f"/api/courses/{course['id']}"
            for user in (ana, li):
                await join(site, user, course["join_code"])
            people = (await client.get(f"{one}/people")).json()["people"]
            assert [(p["id"], p["role"], p["account"]) for p in people] == [
                (wu, "teacher", "teacher"),
                (ana, "student", "student"),
                (li, "student", "teacher"),
            ]
            assert {p["pseudonym"] for p in people} == {None}, "whose is whose stays unknown"
            await client.patch(one, json={"shows_names": True})
            people = (await client.get(f"{one}/people")).json()["people"]
            assert all(p["pseudonym"].startswith("Student ") for p in people)

            refused = await client.patch(f"{one}/people/{ana}", json={"role": "teacher"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "not_a_teacher")
            for method, body in (("PATCH", {"role": "student"}), ("DELETE", None)):
                last = await client.request(method, f"{one}/people/{wu}", json=body)
                assert (last.status_code, last.json()["error"]["code"]) == (400, "last_teacher")
            promoted = await client.patch(f"{one}/people/{li}", json={"role": "teacher"})
            assert promoted.json()["role"] == "teacher"
            assert (await client.delete(f"{one}/people/{wu}")).status_code == 204
            assert (await client.get(one)).status_code == 404, "not any more"
            assert (await client.delete(f"{one}/people/{ana}")).status_code == 404
        async with site.client(li) as client:
            assert (await client.delete(f"{one}/people/{ana}")).status_code == 204
            assert (await client.delete(f"{one}/people/{ana}")).status_code == 404
        async with site.client(ana) as client:
            assert (await client.get(one)).status_code == 404


async def test_of_two_teachers_who_remove_each_other_one_stays(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        wu = await site.account("teacher", "wu", "demo")
        li = await site.account("teacher", "li", "demo")
        people = "/api/courses/demo/people"
        async with site.client(wu) as first, site.client(li) as second:
            replies = await asyncio.gather(
                first.delete(f"{people}/{li}"), second.delete(f"{people}/{wu}")
            )
            assert 204 in {reply.status_code for reply in replies}
            seen = [(await client.get(people)).status_code for client in (first, second)]
        assert seen.count(200) == 1


async def test_a_teacher_resets_the_password_of_a_student(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        wu = await site.account("teacher", "wu", "demo")
        li = await site.account("teacher", "li", "demo")
        ana = await site.account("student", "ana", "demo")
        people = "/api/courses/demo/people"
        async with site.client(wu) as client:
            refused = await client.post(f"{people}/{li}/reset")
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_a_student")
            first = (await client.post(f"{people}/{ana}/reset")).json()
            second = (await client.post(f"{people}/{ana}/reset")).json()
        async with site.client(ana) as client:
            gone = await client.get(f"/api/links/{first['token']}")
            assert gone.status_code == 404, "the newer link takes its place"
            link = f"/api/links/{second['token']}"
            assert (await client.get(link)).json() == {
                "purpose": "reset",
                "role": "student",
                "name": "ana",
                "login": "ana",
            }
            async with socket_of(site, site.session(ana)) as socket:
                await socket.send("hello")
                await socket.until("welcome")
                reset = await client.post(link, json={"password": "a better horse"})
                assert reset.status_code == 201, reset.text
                assert (await socket.until())["code"] == 1008, "sessions of before have ended"
            assert (await client.get("/api/me")).json()["me"]["id"] == ana
            old = await client.post("/api/login", json={"login": "ana", "password": PASSWORD})
            assert old.status_code == 401
            assert (await client.post(link, json={"password": "x" * 12})).status_code == 404


async def test_a_disabled_account_is_out_at_once_and_its_answer_is_kept(tmp_path: Path) -> None:
    async with open_site(tmp_path, lambda prompt: "word " * 2000, script={"token_s": 0.02}) as site:
        wu = await site.account("teacher", "wu", "demo")
        ana = await site.account("student", "ana", "demo")
        async with socket_of(site, site.session(ana)) as socket, site.client(wu) as client:
            await socket.send("ask", id=new_key(), text=QUESTION)
            accepted = await socket.until("accepted")
            await socket.until("delta")
            one = f"/api/courses/demo/people/{ana}"
            disabled = await client.patch(one, json={"is_disabled": True})
            assert disabled.json()["is_disabled"] is True
            told = await socket.until("finish", "error")
            assert told.get("code") == 1008, told
            async with site.client(ana) as own:
                assert (await own.get("/api/me")).status_code == 401
                again = await own.post("/api/login", json={"login": "ana", "password": PASSWORD})
                assert (again.status_code, again.json()["error"]["code"]) == (401, "disabled")
            run = site.app.service.runs.get(accepted["run"])
            assert run is not None
            assert not run.is_finished, "what was begun rightfully goes on"
            run.cancel()
            async for _ in run.events(run.last_seq):
                pass
            stored = await site.app.messages.get(ana, accepted["message"])
            assert stored is not None
            assert stored.state == "stopped"
            assert stored.text.startswith("word word")
            await client.patch(one, json={"is_disabled": False})
            async with site.client(ana) as own:
                again = await own.post("/api/login", json={"login": "ana", "password": PASSWORD})
                assert again.status_code == 200


async def test_nobody_disables_another_teacher_s_student(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        wu = await site.account("teacher", "wu", "demo")
        li = await site.account("teacher", "li")
        ana = await site.account("student", "ana", "demo")
        async with site.client(li) as client:
            await join(site, ana, (await make_course(client))["join_code"])
        async with site.client(wu) as client:
            one = f"/api/courses/demo/people/{ana}"
            refused = await client.patch(one, json={"is_disabled": True})
            assert refused.json()["error"]["code"] == "other_teachers"
            assert (await client.delete(one)).status_code == 204, "but out of this course"


async def test_who_is_removed_is_told_and_may_not_ask_again(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        wu = await site.account("teacher", "wu")
        ana = await site.account("student", "ana")
        async with site.client(wu) as client:
            course = await make_course(client)
            await join(site, ana, course["join_code"])
            async with socket_of(site, site.session(ana)) as socket:
                await socket.send("hello")
                await socket.until("welcome")
                await client.delete(f"/api/courses/{course['id']}/people/{ana}")
                closed = await socket.until()
                assert (closed["code"], closed["reason"]) == (1008, "membership changed")
            async with socket_of(site, site.session(ana)) as socket:
                await socket.send("ask", id=new_key(), text="When?", course=course["id"])
                assert (await socket.until("accepted", "error"))["code"] == "not_found"


async def test_an_archived_course_is_its_teachers_only(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        wu = await site.account("teacher", "wu", "demo")
        ana = await site.account("student", "ana", "demo")
        async with site.client(wu) as client:
            archived = await client.patch("/api/courses/demo", json={"is_archived": True})
            assert archived.json()["archived_at"] is not None
            assert len((await client.get("/api/courses")).json()["courses"]) == 1
            for user in (ana, ALICE):
                async with site.client(user) as other:
                    assert (await other.get("/api/courses/demo")).status_code == 404
                    assert (await other.get("/api/courses")).json() == {"courses": []}
            back = await client.patch("/api/courses/demo", json={"is_archived": False})
            assert back.json()["archived_at"] is None
        async with site.client(ana) as other:
            assert (await other.get("/api/courses/demo")).status_code == 200


async def test_a_course_goes_with_all_that_hangs_on_it(tmp_path: Path, database_url: str) -> None:
    async with open_site(tmp_path / "site", database_url=database_url) as site:
        wu = await site.account("teacher", "wu", "demo")
        accepted = (await site.answer())["accepted"][0]
        async with site.client(wu) as client:
            early = await client.request("DELETE", "/api/courses/demo", json={"confirm": "Demo"})
            assert (early.status_code, early.json()["error"]["code"]) == (409, "not_archived")
            await client.patch("/api/courses/demo", json={"is_archived": True})
            vague = await client.request("DELETE", "/api/courses/demo", json={"confirm": "demo"})
            assert (vague.status_code, vague.json()["error"]["param"]) == (400, "confirm")
            gone = await client.request("DELETE", "/api/courses/demo", json={"confirm": "Demo"})
            assert gone.status_code == 204, gone.text
            assert (await client.get("/api/courses")).json() == {"courses": []}
        assert await site.app.messages.get(ALICE, accepted["message"]) is None
        counts = await _counts(site.app.database)
        assert set(counts.values()) == {0}, counts


async def _counts(database: Database) -> dict[str, int]:
    kind = "fts" if database.is_sqlite else "words"
    tables = ("course", "enrolment", "material", "passage", f"passage_{kind}", f"record_{kind}")
    async with database.session() as session:
        return {
            table: (await session.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one()
            for table in (*tables, "conversation", "message", "message_passage")
        }
