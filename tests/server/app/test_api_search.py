"""A teacher's trial of a question over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.app.site import QUESTION, Site, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

PATH = "/api/courses/demo/search"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(tmp_path, not_found_score=None) as site:
        yield site


async def trial(site: Site, user: Any, **body: Any) -> tuple[int, dict[str, Any]]:
    async with site.client(user) as client:
        reply = await client.post(PATH, json=body)
    return reply.status_code, reply.json()


async def test_a_teacher_sees_what_would_be_found_and_why(site: Site) -> None:
    teacher = await site.account("teacher", "tina", "demo")
    status, found = await trial(site, teacher, question=QUESTION)
    assert status == 200
    assert found["is_found"]
    assert found["score"] >= found["threshold"]
    best = found["passages"][0]
    assert "Tuesday from 14:00" in best["text"]
    assert best["is_given"]
    assert not best["is_hidden"]
    labels = [found["units"][match["unit"]]["label"] for match in best["matches"]]
    assert any("office hour" in label for label in labels)
    for passage in found["passages"]:
        held = {match["unit"] for match in passage["matches"]}
        assert not held & set(passage["missing"])


async def test_a_follow_up_is_tried_with_the_question_before(site: Site) -> None:
    teacher = await site.account("teacher", "tina", "demo")
    _, found = await trial(site, teacher, question="And the room?", previous=QUESTION)
    assert found["is_follow_up"]
    assert any(unit["from_previous"] for unit in found["units"])


async def test_what_is_not_there_is_told_with_what_is_missing(site: Site) -> None:
    teacher = await site.account("teacher", "tina", "demo")
    _, found = await trial(site, teacher, question="office hours of the zebra walrus gizmo?")
    assert not found["is_found"]
    assert not any(passage["is_given"] for passage in found["passages"])
    missing = {found["units"][n]["label"] for n in found["passages"][0]["missing"]}
    assert {"zebra", "walrus", "gizmo"} <= missing


async def test_a_question_of_which_a_part_is_found_is_told_part_by_part(site: Site) -> None:
    teacher = await site.account("teacher", "tina", "demo")
    question = f"{QUESTION} What is the Wi-Fi password? Who may change it?"
    _, reply = await trial(site, teacher, question=question)
    assert not reply["is_found"]
    first, second, third = reply["parts"]
    assert first["question"] == QUESTION
    assert first["found"]["is_found"]
    assert first["found"]["passages"][0]["is_given"]
    assert not second["found"]["is_found"]
    assert third == {"question": "Who may change it?", "found": None}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "question"),
        ({"question": " "}, "question"),
        ({"question": "x" * 10_001}, "question"),
        ({"question": "x", "previous": "x" * 10_001}, "previous"),
        ({"question": "x", "limit": 0}, "limit"),
        ({"question": "x", "limit": 51}, "limit"),
        ({"question": 5}, "question"),
    ],
)
async def test_bad_trials_name_the_field(site: Site, body: dict[str, Any], param: str) -> None:
    teacher = await site.account("teacher", "tina", "demo")
    status, reply = await trial(site, teacher, **body)
    assert status == 400
    assert reply["error"]["param"] == param


async def test_students_try_nothing(site: Site) -> None:
    student = await site.account("student", "sam", "demo")
    stranger = await site.account("teacher", "tom")
    assert (await trial(site, student, question=QUESTION))[0] == 403
    assert (await trial(site, stranger, question=QUESTION))[0] in (403, 404)
