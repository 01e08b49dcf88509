"""The teacher's log: what it finds, what it tells, and what it keeps to itself."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest
from sqlalchemy.exc import OperationalError

from server.app.record_json import COLUMNS
from server.service.auth import UserId
from server.service.messages import Feedback
from server.store.courses import Courses
from server.store.records import RecordFilter
from tests.server.app.site import ALICE, QUESTION, Site, events_of, new_key, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

WRONG = "Elephants may fly to the moon."
LOG = "/api/courses/demo/records"


def answers(prompt: str) -> str:
    question = prompt.rpartition("Question: ")[2] or prompt.rpartition("问题：")[2]
    if "fly?" in question:
        return WRONG
    if "=cmd" in question:
        return "=1+1 is no formula here [9]."
    return "The office hours of the lab are on Tuesday from 14:00 to 16:00 in room B204 [1] [7]."


@dataclass
class Log:
    """A course in which three people have asked."""

    site: Site
    teacher: UserId
    students: tuple[UserId, UserId]
    ids: dict[str, str]
    """Ids of answers by what became of them."""

    async def get(
        self, path: str = LOG, user: UserId | None = None, **query: Any
    ) -> httpx.Response:
        async with self.site.client(user or self.teacher) as client:
            return await client.get(path, params=query)

    async def found(self, **query: Any) -> list[str]:
        reply = await self.get(**query)
        assert reply.status_code == 200, reply.text
        names = {answer: name for name, answer in self.ids.items()}
        return [names[record["id"]] for record in reply.json()["records"]]


@pytest.fixture
async def log(tmp_path: Path, anyio_backend: object) -> AsyncIterator[Log]:
    async with open_log(tmp_path) as log:
        yield log


@pytest.fixture
async def either_log(tmp_path: Path, database_url: str) -> AsyncIterator[Log]:
    """For what the databases do in ways of their own."""
    async with open_log(tmp_path, database_url=database_url) as log:
        yield log


@asynccontextmanager
async def open_log(tmp_path: Path, **options: Any) -> AsyncIterator[Log]:
    async with open_site(tmp_path, answers, **options) as site:
        teacher = await site.account("teacher", "Lin", "demo")
        students = (
            await site.account("student", "Annika", "demo"),
            await site.account("student", "Benedikt", "demo"),
        )
        ids: dict[str, str] = {}

        async def ask(name: str, user: UserId, text: str, **options: Any) -> None:
            run = await site.app.chat.ask(user, site.ask(text, course="demo", **options))
            events = await events_of(run)
            ids[name] = events["accepted"][0]["message"]

        await ask("good", students[0], QUESTION)
        await ask("cut", students[0], QUESTION, max_tokens=3)
        await ask("wrong", students[1], "May the late lab reports fly?")
        await ask("chinese", ALICE, "打印机旁的 office hours 是什么时候？")
        await ask("formula", students[1], "=cmd|' /C calc'!A0 office hours lab?")
        for name, user, value, note in (
            ("wrong", students[1], "down", "They cannot, 它们不会飞"),
            ("good", students[0], "up", None),
        ):
            said = Feedback(id=new_key(), message=ids[name], value=value, note=note)  # type: ignore[arg-type]
            await site.app.chat.feedback(user, said)
        await site.app.record_indexer.index_waiting()
        yield Log(site, teacher, students, ids)


async def test_records_are_found_by_what_became_of_them(either_log: Log) -> None:
    log = either_log
    everything = ["formula", "chinese", "wrong", "cut", "good"]
    assert await log.found() == everything
    assert await log.found(kind="cut") == ["cut"]
    assert await log.found(kind="down") == ["wrong"]
    assert await log.found(kind="up,down") == ["wrong", "good"]
    assert "wrong" in await log.found(kind="no_support")
    assert "good" not in await log.found(kind="no_support")
    assert await log.found(kind="cancelled") == []
    counts = (await log.get(kind="down")).json()["counts"]
    assert (counts["total"], counts["matching"]) == (5, 1)
    kinds = counts["kinds"]
    assert (kinds["cut"], kinds["up"], kinds["down"], kinds["error"]) == (1, 1, 1, 0)
    assert kinds["no_support"] == len(await log.found(kind="no_support"))


async def test_records_are_found_by_words_in_both_languages(either_log: Log) -> None:
    log = either_log
    assert await log.found(text="elephant") == ["wrong"]
    assert await log.found(text="reports may fly") == ["wrong"]
    assert await log.found(text="打印机") == ["chinese"]
    assert await log.found(text="tuesday", kind="up") == ["good"]
    assert await log.found(text="zebra") == []
    assert await log.found(text="') OR 55=55 --") == []
    assert (await log.get(text="zebra")).json()["counts"]["total"] == 0


async def test_records_are_found_by_day_person_and_material(either_log: Log) -> None:
    log = either_log
    record = (await log.get(kind="up")).json()["records"][0]
    day = record["asked_at"][:10]
    assert len(await log.found(**{"from": day, "to": day})) == 5
    assert await log.found(to="2020-01-01") == []
    assert await log.found(**{"from": record["asked_at"], "kind": "up"}) == ["good"]
    assert await log.found(pseudonym=record["asked_by"]["label"]) == ["cut", "good"]
    material = record["sources"][0]["material"]
    assert "good" in await log.found(material=material)
    assert "wrong" not in await log.found(material=material)


async def test_pages_follow_each_other_without_gap_or_repeat(log: Log) -> None:
    found: list[str] = []
    before: dict[str, Any] = {}
    while True:
        page = (await log.get(limit=2, **before)).json()
        found += [record["id"] for record in page["records"]]
        assert page["counts"]["total"] == 5
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    assert found == sorted(log.ids.values(), reverse=True)


async def test_wrong_filters_name_the_parameter(log: Log) -> None:
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"kind": "odd"}, "kind"),
        ({"from": "yesterday"}, "from"),
        ({"to": "2026-09-07T10:00"}, "to"),
        ({"limit": "0"}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"text": "x" * 501}, "text"),
        ({"text": "a\0b"}, "text"),
    )
    for query, param in wrong:
        reply = await log.get(**query)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("limit", ["0", "201", "9" * 30, "0" * 5000 + "1", "-1", "x", "１"])
async def test_a_wrong_limit_is_no_limit(log: Log, limit: str) -> None:
    refused = await log.get(limit=limit)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "limit"


async def test_a_record_tells_how_an_answer_came_about(log: Log) -> None:
    record = (await log.get(f"{LOG}/{log.ids['good']}")).json()
    assert record["question"] == QUESTION
    assert record["answer"].endswith("in room B204 [1].")
    assert (record["finish_detail"], record["kinds"]) == ({"type": "eos"}, ["up"])
    assert record["feedback"]["value"] == "up"
    source = record["sources"][0]
    assert source["is_cited"]
    ((start, end), *_) = source["marks"]
    assert "Tuesday from 14:00" in source["text"][start:end]
    assert record["citations"][0]["n"] == 1
    for name in ("usage", "timing", "context", "model", "options"):
        assert record[name], name
    wrong = (await log.get(f"{LOG}/{log.ids['wrong']}")).json()
    assert "no_support" in [notice["kind"] for notice in wrong["notices"]]
    assert wrong["feedback"]["note"] == "They cannot, 它们不会飞"


async def test_an_anonymous_course_tells_nobody_who_asked(log: Log) -> None:
    site = log.site
    secrets = {"Annika", "Benedikt", *log.students, ALICE}
    for path in (LOG, f"{LOG}.jsonl", f"{LOG}.csv", f"/records/{log.ids['good']}"):
        reply = await log.get(path)
        assert reply.status_code == 200, path
        assert not [word for word in secrets if word in reply.text], path
    labels = {record["id"]: record["asked_by"] for record in (await log.get()).json()["records"]}
    assert labels[log.ids["good"]] == labels[log.ids["cut"]]
    assert labels[log.ids["good"]] != labels[log.ids["wrong"]]
    assert labels[log.ids["chinese"]]["role"] == "guest"
    refused = await log.get(person="Annika")
    assert (refused.status_code, refused.json()["error"]["param"]) == (403, "person")

    course = await Courses(site.app.database).get("demo")
    assert course is not None
    await Courses(site.app.database).change(course.id, {"shows_names": True})
    assert await log.found(person="NNIK") == ["cut", "good"]
    assert await log.found(person="%") == []
    assert "Benedikt" in (await log.get(f"{LOG}.csv")).text


async def test_a_table_is_safe_to_open_and_complete(log: Log) -> None:
    reply = await log.get(f"{LOG}.csv")
    assert reply.headers["content-disposition"] == 'attachment; filename="demo-records.csv"'
    assert reply.content.startswith(b"\xef\xbb\xbf")
    rows = list(csv.DictReader(io.StringIO(reply.content.decode("utf-8-sig"))))
    assert tuple(rows[0]) == COLUMNS
    assert [row["id"] for row in rows] == sorted(log.ids.values(), reverse=True)
    formula = rows[0]
    assert formula["question"].startswith("'=cmd|")
    assert formula["answer"] == "'=1+1 is no formula here."
    assert rows[2]["feedback_note"] == "They cannot, 它们不会飞"
    assert all(cell[:1] not in "=+-@" or not cell for row in rows for cell in row.values())


async def test_lines_are_the_records_and_follow_the_filters(log: Log) -> None:
    listed = (await log.get(kind="up,down")).json()["records"]
    lines = (await log.get(f"{LOG}.jsonl", kind="up,down")).text.splitlines()
    assert [json.loads(line) for line in lines] == listed


async def test_an_export_goes_on_while_answers_come(log: Log) -> None:
    chunks: list[list[str]] = []
    records = log.site.app.records
    course = await Courses(log.site.app.database).get("demo")
    assert course is not None
    async for chunk in records.every(RecordFilter(course.id), chunk=2):
        chunks.append([record.answer.id for record in chunk])
        await log.site.answer()
    assert [len(chunk) for chunk in chunks] == [2, 2, 1]
    assert sorted(id for chunk in chunks for id in chunk) == sorted(log.ids.values())


async def test_records_are_for_the_teachers_of_the_course_alone(log: Log) -> None:
    elsewhere = await log.site.account("teacher", "Xu")
    answer = log.ids["good"]
    for path in (LOG, f"{LOG}.jsonl", f"{LOG}.csv", f"{LOG}/{answer}"):
        assert (await log.get(path, log.students[0])).status_code == 403
        assert (await log.get(path, elsewhere)).status_code == 403, "a guest of an open course"
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(log.site.app), base_url="http://127.0.0.1"
        ) as stranger:
            assert (await stranger.get(path)).status_code == 401
    assert (await log.get(f"{LOG}/nowhere")).status_code == 404
    assert (await log.get(f"/records/{answer}", log.students[1])).status_code == 404
    assert (await log.get(f"/records/{answer}", elsewhere)).status_code == 404
    assert (await log.get(f"/records/{answer}", log.students[0])).status_code == 200


async def test_running_and_deleted_answers_are_no_records(either_log: Log) -> None:
    log = either_log
    async with log.site.client(log.students[0]) as client:
        conversation = (await log.get(f"{LOG}/{log.ids['good']}")).json()["conversation"]
        assert (await client.delete(f"/api/conversations/{conversation}")).status_code == 204
    assert "good" not in await log.found()
    assert "good" not in await log.found(text="tuesday")
    assert log.ids["good"] not in await log.site.app.records.without_words()


async def test_an_answer_that_goes_on_while_it_is_indexed_is_indexed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_site(tmp_path, lambda _: "On Tuesday. A zebra comes later.") as site:
        records, indexer = site.app.records, site.app.record_indexer
        await indexer.stop()
        done = (await site.answer(max_tokens=4))["accepted"][0]["message"]
        assert "zebra" not in (await site.stored(done))["text"]
        put_words = records.put_words

        async def put_and_go_on(words: Any) -> None:
            monkeypatch.undo()
            await site.go_on(done)
            await put_words(words)

        monkeypatch.setattr(records, "put_words", put_and_go_on)
        await indexer.index_waiting()
        teacher = await site.account("teacher", "Lin", "demo")
        async with site.client(teacher) as client:
            reply = await client.get(LOG, params={"text": "zebra"})
        assert [record["id"] for record in reply.json()["records"]] == [done]


async def test_what_could_not_be_indexed_waits_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_site(tmp_path, answers) as site:
        await site.app.record_indexer.stop()
        await site.answer()

        async def fail(_words: object) -> NoReturn:
            raise OperationalError("INSERT", {}, Exception("database is locked"))

        with monkeypatch.context() as patch:
            patch.setattr(site.app.records, "put_words", fail)
            with pytest.raises(OperationalError):
                await site.app.record_indexer.index_waiting()
        await site.app.record_indexer.index_waiting()
        assert await site.app.records.without_words() == []


async def test_what_a_process_left_unindexed_is_found_at_the_next_start(
    tmp_path: Path, database_url: str
) -> None:
    async with open_site(tmp_path, answers, database_url=database_url) as site:
        done = (await site.answer())["accepted"][0]["message"]
        assert await site.app.records.without_words() == [done]
    async with open_site(tmp_path, answers, database_url=database_url) as site:
        await site.app.record_indexer.index_waiting()
        assert await site.app.records.without_words() == []
        teacher = await site.account("teacher", "Lin", "demo")
        async with site.client(teacher) as client:
            reply = await client.get(LOG, params={"text": "tuesday"})
        assert [record["id"] for record in reply.json()["records"]] == [done]
