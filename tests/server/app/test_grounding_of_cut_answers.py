"""What is told of an answer that was cut or stopped, and that nothing in its sources supports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from server.store.courses import Courses
from server.store.records import RecordFilter, RecordKind, Records
from tests.server.app.site import ALICE, QUESTION, Site, events_of, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

KNOWN = "The office hours of the lab are on Tuesday from 14:00 to 16:00 in room B204."
MADE_UP = (
    "Elephants can fly to the moon in winter. Penguins drive green buses through the desert. "
    "Whales knit warm sweaters of golden straw. "
)
LETTERS = {"token_chars": 1}
"""Each token is one letter."""


async def told(site: Site, finish: dict[str, Any], answer_id: str) -> bool:
    """Whether it is told that nothing supports an answer; the same everywhere."""
    stored = await site.stored(answer_id)
    kinds = [notice["kind"] for notice in stored["notices"]]
    course = await Courses(site.app.database).get("demo")
    assert course is not None
    wanted = RecordFilter(course.id, kinds=frozenset({RecordKind.NO_SUPPORT}))
    counts = await Records(site.app.database).counts(wanted)
    is_told = "no_support" in kinds
    assert (finish["no_support"], stored["no_support"]) == (is_told, is_told)
    assert counts.matching == is_told
    return is_told


@pytest.mark.parametrize(
    ("answer", "max_tokens", "expected"),
    [
        (MADE_UP * 3, 150, True),
        (MADE_UP * 3, 8, False),
        (f"{KNOWN} {MADE_UP * 3}", 230, False),
    ],
)
async def test_an_answer_cut_by_its_limit(
    tmp_path: Path, answer: str, max_tokens: int, expected: bool
) -> None:
    async with open_site(tmp_path, lambda _: answer, script=LETTERS) as site:
        events = await site.answer(QUESTION, max_tokens=max_tokens)
        finish, answer_id = events["finish"][0], events["accepted"][0]["message"]
        assert finish["finish_reason"] == "length"
        assert await told(site, finish, answer_id) is expected
        made_up = [one for one in events.get("citation", []) if one["by"] == "none"]
        # Beside what is supported the rest is told of, but for what was cut.
        assert bool(made_up) is answer.startswith(KNOWN)


async def test_an_answer_that_its_reader_stopped(tmp_path: Path) -> None:
    slow = {**LETTERS, "token_s": 0.002}
    async with open_site(tmp_path, lambda _: MADE_UP * 10, script=slow) as site:
        run = await site.app.chat.ask(ALICE, site.ask())
        num_chars = 0
        async for event in run.events():
            num_chars += len(json.loads(event.data).get("text", ""))
            if num_chars > len(MADE_UP):
                run.cancel()
                break
        events = await events_of(run)
        finish = events["finish"][0]
        assert finish["finish_detail"] == {"type": "cancelled"}
        assert await told(site, finish, events["accepted"][0]["message"])


async def test_a_cut_answer_is_judged_anew_when_it_goes_on(tmp_path: Path) -> None:
    async with open_site(tmp_path, lambda _: f"{MADE_UP} {KNOWN}", script=LETTERS) as site:
        events = await site.answer(QUESTION, max_tokens=120)
        answer_id = events["accepted"][0]["message"]
        assert await told(site, events["finish"][0], answer_id)
        more = await site.go_on(answer_id, max_tokens=400)
        assert more["finish"][0]["finish_reason"] == "stop"
        assert not await told(site, more["finish"][0], answer_id)


async def test_nothing_is_said_where_a_supported_part_goes_on_into_an_open_sentence(
    tmp_path: Path,
) -> None:
    """What supported the shorter text does not support the longer one, of which too little is
    complete to say that nothing does."""
    supported = "Tuesday from 14:00 to 16:00 in room B204"
    more = " is when most groups across several campuses usually find penguins manageable " * 2
    async with open_site(tmp_path, lambda _: supported + more, script=LETTERS) as site:
        events = await site.answer(QUESTION, max_tokens=len(supported))
        answer_id = events["accepted"][0]["message"]
        assert [one["by"] for one in events["citation"]] == ["match"]
        longer = await site.go_on(answer_id, max_tokens=len(more) - 10)
        assert longer["finish"][0]["finish_reason"] == "length"
        assert "citation" not in longer
        assert not await told(site, longer["finish"][0], answer_id)
        stored = await site.stored(answer_id)
        assert stored["citations"] is None
        assert not any(source["marks"] for source in stored["passages"])
