"""The retriever on the sample course: the right passage first, in the right language, or none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from scripts.retrieval_courses import store_course
from server.app.materials.document import PassageLimits
from server.app.retrieval import Previous, Retriever, Viewer
from server.store.analysis import is_han
from server.store.database import Database, sqlite_url
from server.store.schema import Course, Material

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

SAMPLE = Path(__file__).parents[3] / "server" / "app" / "sample_course"


@pytest.fixture(scope="module")
async def sample(
    anyio_backend: object, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Database, str]]:
    folder = tmp_path_factory.mktemp("store")
    database = Database(sqlite_url(folder / "sample.db"))
    await database.open()
    # Sections of their own, so that a test can name the one that answers.
    course = await store_course(database, SAMPLE, PassageLimits(20, 260))
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
    assert strict.score == loose.score == max(p.score for p in loose.passages[:3])


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
    retriever = Retriever(database, not_found_score=1.1)
    retrieved = await retriever.retrieve(course_id, "When is each lab due?", limit=6)
    dated = {p.title[:5] for p in retrieved.passages if "Deadline" in p.locator}
    assert dated == {"Lab 1", "Lab 2", "Lab 3", "Lab 4"}


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
        course_id, "And the deadline?", previous=Previous("What do I submit for Lab 3?")
    )
    assert helped.is_found
    assert helped.passages[0].title == "Lab 3: Paged KV cache and prefix cache"
    assert helped.passages[0].locator.startswith("Deadline")
    assert alone.passages[0].title != helped.passages[0].title


async def test_a_new_subject_is_not_held_back_by_the_question_before(
    sample: tuple[Database, str],
) -> None:
    database, course_id = sample
    question, previous = "Where does the final exam take place?", "What is a prefix cache?"
    retriever = Retriever(database)
    alone = await retriever.retrieve(course_id, question)
    after = await retriever.retrieve(course_id, question, previous=Previous(previous))
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


async def change(database: Database, course: str, title: str, **fields: Any) -> None:
    async with database.transaction() as session:
        await session.execute(
            update(Material)
            .where(Material.course_id == course, Material.title == title)
            .values(**fields)
        )


LAB_3 = "Lab 3: Paged KV cache and prefix cache"
NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "fields",
    [{"is_hidden": True}, {"visible_from": NOW + timedelta(seconds=1)}, {"state": "parsing"}],
)
async def test_students_are_never_given_what_they_may_not_see(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    database = Database(sqlite_url(tmp_path / "s.db"))
    await database.open()
    course = (await store_course(database, SAMPLE)).id
    retriever = Retriever(database, not_found_score=1.1)  # the nearest ones as well
    student, teacher = Viewer("s", now=NOW), Viewer("t", sees_hidden=True, now=NOW)

    async def titles(viewer: Viewer) -> set[str]:
        found = await retriever.retrieve(course, "deadline of lab 3", viewer=viewer, limit=50)
        return {passage.title for passage in found.passages}

    assert LAB_3 in await titles(student)
    await change(database, course, LAB_3, **fields)
    assert LAB_3 not in await titles(student)
    assert (LAB_3 in await titles(teacher)) == ("state" not in fields)
    explained = await retriever.explain(course, "deadline of lab 3", viewer=teacher)
    hidden = {found.passage.title for found in explained.passages if found.is_hidden}
    assert hidden == (set() if "state" in fields else {LAB_3})
    await change(database, course, LAB_3, is_hidden=False, visible_from=NOW, state="ready")
    assert LAB_3 in await titles(student)
    await database.close()


async def test_this_week_is_the_week_of_the_courses_calendar(tmp_path: Path) -> None:
    database = Database(sqlite_url(tmp_path / "s.db"))
    await database.open()
    course = (await store_course(database, SAMPLE)).id
    async with database.transaction() as session:
        await session.execute(update(Course).values(starts_on=date(2026, 9, 7)))
    await change(database, course, LAB_3, week=9)
    explained = await Retriever(database).explain(
        course, "What is due this week?", viewer=Viewer("s", now=NOW)
    )
    (this_week,) = (unit for unit in explained.units if unit.label.startswith("11-02"))
    held = [
        found.passage.title
        for found in explained.passages
        if any(explained.units[match.unit] is this_week for match in found.matches)
    ]
    assert LAB_3 in held
    await database.close()


async def test_an_explanation_agrees_with_what_is_retrieved(
    sample: tuple[Database, str],
) -> None:
    database, course_id = sample
    retriever, viewer = Retriever(database), Viewer("t", sees_hidden=True)
    for question in ("When are office hours?", "Where can I rent a bicycle?"):
        retrieved = await retriever.retrieve(course_id, question, viewer=viewer, limit=20)
        explained = await retriever.explain(course_id, question, viewer=viewer)
        assert (explained.is_found, explained.score) == (retrieved.is_found, retrieved.score)
        given = [found.passage for found in explained.passages if found.is_given]
        assert given == (list(retrieved.passages) if retrieved.is_found else [])
        assert [f.lexical_place for f in explained.passages] == list(
            range(1, len(explained.passages) + 1)
        )
        for found in explained.passages:
            assert found.matches
            assert all(match.columns and match.frequency > 0 for match in found.matches)


async def test_an_explanation_names_what_is_asked_and_where_it_stands(
    sample: tuple[Database, str],
) -> None:
    database, course_id = sample
    explained = await Retriever(database).explain(
        course_id,
        "And for Lab 3?",
        previous=Previous("When is Lab 2 due?"),
        viewer=Viewer("t"),
    )
    labels = {unit.label: unit for unit in explained.units}
    assert explained.is_follow_up
    assert not labels["lab 3"].from_previous
    assert "lab 2" not in labels
    assert next(unit for label, unit in labels.items() if "deadline" in label).from_previous
    numbers = [unit.label for unit in explained.units]
    best = explained.passages[0]
    assert any(
        numbers[match.unit] == "lab 3" and "title" in match.columns for match in best.matches
    )


WIFI, WIFI_ZH = "what is the Wi-Fi password of the lecture room?", "教室的Wi-Fi密码是什么？"


@pytest.mark.parametrize(
    ("question", "found", "missing"),
    [
        (f"When is Lab 4 due, and {WIFI}", "When is Lab 4 due?", WIFI),
        ("What is the Wi-Fi password? When is Lab 4 due?", "When is Lab 4 due?", None),
        (f"实验四什么时候交？{WIFI_ZH}", "实验四什么时候交？", WIFI_ZH),
        (f"实验四什么时候交，另外{WIFI_ZH}", "实验四什么时候交？", WIFI_ZH),
    ],
)
async def test_the_half_that_the_course_knows_is_found(
    sample: tuple[Database, str], question: str, found: str, missing: str | None
) -> None:
    database, course_id = sample
    retrieved = await Retriever(database).retrieve(course_id, question)
    alone = await Retriever(database).retrieve(course_id, found)
    assert retrieved.is_found
    assert retrieved.found_question == found
    assert retrieved.missing_parts == (missing or "What is the Wi-Fi password?",)
    assert retrieved.passages == alone.passages


@pytest.mark.parametrize(
    ("question", "known"),
    [
        (f"When is Lab 4 due, and {WIFI}", [True, False]),
        (f"实验四什么时候交？{WIFI_ZH}", [True, False]),
        # What leans on a part that is not found is not searched.
        ("When is Lab 4 due? What is the Wi-Fi password? Who may change it?", [True, False, None]),
    ],
)
async def test_the_explained_parts_are_those_that_an_answer_is_made_from(
    sample: tuple[Database, str], question: str, known: list[bool | None]
) -> None:
    database, course_id = sample
    retriever = Retriever(database)
    retrieved = await retriever.retrieve(course_id, question, limit=3)
    explained = await retriever.explain(course_id, question, viewer=Viewer("tina"), num_given=3)
    assert not explained.is_found
    assert not any(found.is_given for found in explained.passages)
    parts = explained.parts
    assert [part.explained and part.explained.is_found for part in parts] == known
    missing = [part.question for part in parts if not (part.explained and part.explained.is_found)]
    assert tuple(missing) == retrieved.missing_parts
    found = parts[0].explained
    assert found is not None
    given = [one.passage for one in found.passages if one.is_given]
    assert tuple(given) == retrieved.passages
    assert found.score == retrieved.score


async def test_only_what_an_answer_is_made_from_is_explained_as_given(
    sample: tuple[Database, str],
) -> None:
    database, course_id = sample
    retriever, question = Retriever(database), "lab report deadline"
    given = {}
    for num_given in (1, 3):
        explained = await retriever.explain(
            course_id, question, viewer=Viewer("tina"), num_given=num_given
        )
        given[num_given] = [one.passage.id for one in explained.passages if one.is_given]
        retrieved = await retriever.retrieve(course_id, question, limit=num_given)
        assert given[num_given] == [passage.id for passage in retrieved.passages]
    assert len(given[1]) == 1 < len(given[3])


@pytest.mark.parametrize(
    "question",
    [
        "What is the Wi-Fi password? Who may change it?",
        "What is the salary of the assistants, and what is the Wi-Fi password?",
        "法国的首都是哪里？教室的Wi-Fi密码是什么？",
    ],
)
async def test_where_no_part_is_found_nothing_is(
    sample: tuple[Database, str], question: str
) -> None:
    database, course_id = sample
    retrieved = await Retriever(database).retrieve(course_id, question)
    assert not retrieved.is_found
    assert (retrieved.missing_parts, retrieved.found_question) == ((), None)
    assert retrieved.passages, "the nearest ones"


@pytest.mark.parametrize(
    "question", ["What are labs and exams worth?", "实验和考试各占多少？", "When is Lab 4 due?"]
)
async def test_a_question_that_is_found_is_searched_once(
    sample: tuple[Database, str], monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    database, course_id = sample
    searched: list[str] = []
    find = Retriever._find

    async def counted(self: Retriever, course_id: str, text: str, *rest: Any) -> Any:
        searched.append(text)
        return await find(self, course_id, text, *rest)

    monkeypatch.setattr(Retriever, "_find", counted)
    assert (await Retriever(database).retrieve(course_id, question)).is_found
    assert searched == [question]
