"""The retriever on the sample course: the right passage first, in the right language, or none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from server.app.materials.importer import MaterialImporter
from server.app.passages import estimate_tokens
from server.app.relevance import score_hits
from server.app.retrieval import Retriever
from server.store.analysis import is_han, query_units
from server.store.database import Database, sqlite_url
from server.store.search import Hit, WordCounts

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

SAMPLE = Path(__file__).parents[3] / "server" / "app" / "sample_course"


async def estimate(texts: Sequence[str]) -> list[int]:
    return [estimate_tokens(text) for text in texts]


@pytest.fixture(scope="module")
async def sample(
    anyio_backend: object, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Database, str]]:
    database = Database(sqlite_url(tmp_path_factory.mktemp("store") / "sample.db"))
    await database.open()
    course = await MaterialImporter(database, estimate).import_course(SAMPLE)
    yield database, course.id
    await database.close()


@pytest.mark.parametrize(
    ("question", "title", "fact"),
    [
        ("When are office hours?", "Staff and office hours", "14:00 to 16:00"),
        ("什么时候答疑？", "教师与答疑时间", "K312"),
        ("What do I have to submit for Lab 4?", "Lab 4: A streaming server", "load_test.json"),
        ("实验四需要提交什么？", "实验四：流式服务器", "load_test.json"),
        ("第四次实验要交什么", "实验四：流式服务器", "load_test.json"),
        ("deadline of the third lab", "Lab 3: Paged KV cache and prefix cache", "13 November"),
        ("抢占", "第二讲：批处理与调度", "收走它的块"),
    ],
)
async def test_the_answering_passage_is_found(
    sample: tuple[Database, str], question: str, title: str, fact: str
) -> None:
    database, course_id = sample
    retrieved = await Retriever(database).retrieve(course_id, question, limit=3)
    assert retrieved.is_found
    assert any(p.title == title and fact in p.text for p in retrieved.passages[:2])
    assert all(0 < p.num_tokens < 400 and 0 <= p.score <= 1 for p in retrieved.passages)


@pytest.mark.parametrize(
    "question",
    ["Where can I rent a bicycle?", "学校食堂几点关门？", "When is Lab 7 due?",
     "实验九什么时候截止？", "", "???", "的吗呢", "\x00 \" OR *"],
)  # fmt: skip
async def test_a_question_about_something_else_is_not_found(
    sample: tuple[Database, str], question: str
) -> None:
    database, course_id = sample
    assert not (await Retriever(database).retrieve(course_id, question)).is_found


async def test_the_threshold_decides(sample: tuple[Database, str]) -> None:
    database, course_id = sample
    question = "Is the swimming pool near the Kestrel Building?"
    strict = await Retriever(database, not_found_score=0.99).retrieve(course_id, question)
    loose = await Retriever(database, not_found_score=0.01).retrieve(course_id, question)
    assert (strict.is_found, loose.is_found) == (False, True)
    assert strict.score == loose.score == loose.passages[0].score


async def test_what_is_found_comes_alone_and_what_is_not_with_the_nearest(
    sample: tuple[Database, str],
) -> None:
    database, course_id = sample
    question = "Which block does the prefix cache evict first?"
    found = await Retriever(database, not_found_score=0.5).retrieve(course_id, question)
    nearest = await Retriever(database, not_found_score=1.1).retrieve(course_id, question)
    assert found.passages[0].locator == "Eviction"
    assert not nearest.is_found
    assert len(found.passages) < len(nearest.passages) == 8
    assert found.passages == nearest.passages[: len(found.passages)]


async def test_passages_as_good_as_the_best_come_with_it(sample: tuple[Database, str]) -> None:
    database, course_id = sample
    retrieved = await Retriever(database).retrieve(course_id, "When is each lab due?")
    places = {(p.title[:5], p.locator) for p in retrieved.passages[:4]}
    assert places == {(f"Lab {n}", "Deadline") for n in range(1, 5)}


@pytest.mark.parametrize("question", ["KV cache lab 3", "KV cache 实验三"])
async def test_passages_in_the_language_of_the_question_come_first(
    sample: tuple[Database, str], question: str
) -> None:
    database, course_id = sample
    # As if nothing were near enough, so that passages far from the best are seen as well.
    retriever = Retriever(database, not_found_score=1.1)
    retrieved = await retriever.retrieve(course_id, question, limit=2)
    assert [is_han(p.text) for p in retrieved.passages] == [is_han(question)] * 2


async def test_a_follow_up_leans_on_the_question_before(sample: tuple[Database, str]) -> None:
    database, course_id = sample
    retriever = Retriever(database)
    alone = await retriever.retrieve(course_id, "And the deadline?")
    helped = await retriever.retrieve(
        course_id, "And the deadline?", previous_question="What do I submit for Lab 3?"
    )
    assert helped.is_found
    assert helped.passages[0].title == "Lab 3: Paged KV cache and prefix cache"
    assert helped.passages[0].locator == "Deadline"
    assert alone.passages[0].title != helped.passages[0].title


async def test_a_new_subject_is_not_held_back_by_the_question_before(
    sample: tuple[Database, str],
) -> None:
    database, course_id = sample
    question, previous = "Where does the final exam take place?", "What is a prefix cache?"
    retriever = Retriever(database)
    alone = await retriever.retrieve(course_id, question)
    after = await retriever.retrieve(course_id, question, previous_question=previous)
    assert after.is_found
    assert after.passages[0] == alone.passages[0]


async def test_the_limit_holds_and_another_course_is_empty(sample: tuple[Database, str]) -> None:
    database, course_id = sample
    retriever = Retriever(database)
    assert len((await retriever.retrieve(course_id, "lab deadline", limit=2)).passages) == 2
    assert (await retriever.retrieve("nowhere", "lab deadline")).passages == ()


async def test_a_huge_question_is_searched_by_its_ends(sample: tuple[Database, str]) -> None:
    database, course_id = sample
    question = "When are office hours? " + "x1y2z3 " * 100_000
    retrieved = await Retriever(database).retrieve(course_id, question)
    assert any("office hours" in p.title for p in retrieved.passages)


def test_words_that_occur_nowhere_count_against_a_passage() -> None:
    units = query_units("prefix bicycle")
    hits = [Hit("a", 1.0, {"prefix": 1.0}, 10)]
    counts = WordCounts(10, {"prefix": 1, "bicycl": 0})
    (relevance,) = score_hits(units, hits, counts)
    assert 0 < relevance.coverage < 1
    (full,) = score_hits(query_units("prefix"), hits, counts)
    assert full.coverage == 1
    (number,) = score_hits(query_units("prefix lab 7"), hits, WordCounts(10, {"prefix": 1}))
    assert number.coverage < relevance.coverage
