"""The JSON API of the application."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from server.service.messages import Feedback
from tests.server.app.site import ALICE, QUESTION, Site, open_site

pytestmark = pytest.mark.anyio


@pytest.fixture
async def site(tmp_path: Path, anyio_backend: object) -> AsyncIterator[Site]:
    async with open_site(tmp_path) as site:
        yield site


async def test_courses_and_their_materials(site: Site) -> None:
    async with site.client() as client:
        (course,) = (await client.get("/api/courses")).json()["courses"]
        assert (course["title"], course["title_zh"]) == ("Demo", "演示")
        assert course["num_materials"] == 1
        assert course["suggestions"] == [{"en": QUESTION}]
        events = await site.answer(course=course["id"])
        passage = events["retrieval"][0]["passages"][0]
        material = (await client.get(f"/api/materials/{passage['material']}")).json()
    assert material["id"] == passage["material"]
    assert "room B204" in material["text"]


async def test_conversations_are_listed_by_course_and_survive_a_restart(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        first = (await site.answer())["accepted"][0]["conversation"]
        second = (await site.answer("Where is the lab? " * 20))["accepted"][0]["conversation"]
        await site.answer(conversation=first)
        before = await site.conversation(first)
    async with open_site(tmp_path) as site, site.client() as client:
        found = (await client.get("/api/conversations?course=demo")).json()["conversations"]
        assert [one["id"] for one in found] == [first, second]
        assert [one["num_messages"] for one in found] == [4, 2]
        assert found[0]["title"] == QUESTION
        assert len(found[1]["title"]) <= 121
        assert await site.conversation(first) == before
        assert (await client.get("/api/conversations?course=nowhere")).status_code == 404


async def test_a_running_answer_is_named(tmp_path: Path) -> None:
    async with open_site(tmp_path, lambda _: "x" * 400, script={"token_s": 0.02}) as site:
        run = await site.app.chat.ask(ALICE, site.ask())
        async for event in run.events():
            if event.type == "start":
                break
        assert run.conversation is not None
        assert (await site.conversation(run.conversation))["active_run"] == run.id
        async with site.client() as client:
            reply = await client.delete(f"/api/conversations/{run.conversation}")
            assert reply.status_code == 204
            assert run.is_finished
            reply = await client.get(f"/api/conversations/{run.conversation}")
            assert reply.status_code == 404


async def test_the_export_holds_how_every_answer_ended(site: Site) -> None:
    events = await site.answer(max_tokens=3)
    accepted = events["accepted"][0]
    await site.app.chat.feedback(
        ALICE, Feedback(id="f", message=accepted["message"], value="down", note="cut")
    )
    async with site.client() as client:
        reply = await client.get(f"/api/conversations/{accepted['conversation']}/export")
    lines = [json.loads(line) for line in reply.text.splitlines()]
    assert [line["kind"] for line in lines] == ["conversation", "message", "message"]
    answer = lines[2]
    assert answer["finish_detail"] == {"type": "max_tokens"}
    (passage,), (told,) = answer["passages"], events["retrieval"][0]["passages"]
    assert passage | told == passage
    (notice,) = answer["notices"]
    assert notice["en"] == "Stopped at the length limit of 3 tokens."
    assert "3" in notice["zh"]


async def test_status_names_the_model(site: Site) -> None:
    async with site.client() as client:
        status = (await client.get("/api/status")).json()
    assert status["state"] == "ready"
    assert status["model"]["max_model_len"] == 8192
    assert status["model"]["is_fallback"] is False


@pytest.mark.parametrize("path", ["/api/conversations", "/api/conversations/x"])
async def test_private_things_need_a_session(site: Site, path: str) -> None:
    transport = httpx.ASGITransport(site.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        reply = await client.get(path)
    assert reply.status_code == 401
    assert reply.json()["error"]["type"] == "authentication_error"


async def test_what_is_not_there_is_told_as_json(site: Site) -> None:
    async with site.client() as client:
        for reply in (
            await client.get("/api/nothing"),
            await client.get("/api/materials/nothing"),
            await client.get("/api/conversations/nothing"),
        ):
            assert reply.status_code == 404
            assert reply.json()["error"]["message"]
        assert (await client.post("/api/status")).status_code == 405


async def test_the_page_starts_a_session_that_the_api_knows(site: Site) -> None:
    transport = httpx.ASGITransport(site.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        page = await client.get("/")
        assert page.status_code == 200
        assert "lectern_session" in page.cookies
        assert (await client.get("/api/conversations")).json()["conversations"] == []
