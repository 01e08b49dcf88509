"""The course that comes with the server: what the page suggests asking is found in it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from server.app.factory import SAMPLE_COURSE
from server.app.library_setup import folder_importer
from server.app.passages import estimate_tokens
from server.app.retrieval import Previous, Retriever
from server.store.database import Database, sqlite_url

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

FOUND = {
    "When are office hours?": "Office hours a",
    "What do I have to submit for Lab 4?": "lab4.zip",
    "How is the final grade made up?": "| Final exam | 30",
    "What may I bring to the exam?": "handwritten notes",
    "What is continuous batching?": "Continuous batching",
    "What happens if I hand in a lab late?": "loses 10% of its points",
    "什么时候答疑？": "答疑",
    "实验四需要提交什么？": "lab4.zip",
    "总成绩由哪些部分组成？": "| 期末考试 | 30",
    "考试可以带什么？": "手写",
    "什么是连续批处理？": "连续批处理在每一步",
    "实验迟交会怎样？": "扣该实验 10%",
}
"""Words of the passage that answers."""
MISSED_AFTER = {
    ("什么是连续批处理？", "实验迟交会怎样？"),
    ("Explain fairness and ageing in scheduling", "实验迟交会怎样？"),
}
"""Where words alone still prefer what was asked before: Lab 2 is about both."""


async def _count(texts: Sequence[str]) -> list[int]:
    return [estimate_tokens(text) for text in texts]


@asynccontextmanager
async def sample(tmp_path: Path) -> AsyncIterator[tuple[Retriever, str]]:
    """What searches the sample course, and the course's id."""
    database = Database(sqlite_url(tmp_path / "s.db"))
    await database.open()
    course = await folder_importer(database, _count, tmp_path).import_course(SAMPLE_COURSE)
    yield Retriever(database), course.id
    await database.close()


async def test_the_suggested_questions_find_their_answers(tmp_path: Path) -> None:
    course = json.loads((SAMPLE_COURSE / "course.json").read_text("utf-8"))
    suggested = [text for one in course["suggestions"] for text in one.values()]
    assert sorted(suggested) == sorted(FOUND)
    async with sample(tmp_path) as (retriever, course_id):
        for question, words in FOUND.items():
            found = await retriever.retrieve(course_id, question)
            assert found.is_found, question
            assert any(words in passage.text for passage in found.passages), question


async def test_they_find_them_whatever_was_asked_before(tmp_path: Path) -> None:
    """A short question was taken for one about the topic before, which has many words."""
    topics = ("Explain fairness and ageing in scheduling", "Who won the football world cup?")
    misses: set[tuple[str, str]] = set()
    async with sample(tmp_path) as (retriever, course_id):
        for before in (*FOUND, *topics):
            taken = await retriever.retrieve(course_id, before, limit=3)
            materials = dict.fromkeys(passage.material_id for passage in taken.passages)
            previous = Previous(before, tuple(materials))
            for question, words in FOUND.items():
                found = await retriever.retrieve(course_id, question, previous=previous)
                if not (found.is_found and any(words in one.text for one in found.passages)):
                    misses.add((before, question))
    assert misses <= MISSED_AFTER
