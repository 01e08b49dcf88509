"""The full-text index on both databases: what it finds, and that queries cannot break it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import text

from server.store import fts_index
from server.store.analysis import QueryUnit, index_words, query_units
from server.store.database import Database
from server.store.passage_index import IndexedWords, passage_index, record_index
from server.store.passage_items import body_words

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

CASES = Path(__file__).parents[2] / "cases"


def words_of(text: str, heading: str = "", title: str = "") -> IndexedWords:
    return IndexedWords(*(" ".join(index_words(column)) for column in (title, heading, text)))


async def fill(
    database: Database, texts: dict[str, IndexedWords], course: str = "c1", material: str = "m1"
) -> None:
    async with database.transaction() as session:
        await passage_index(database).add(session, course, material, list(texts.items()))


async def found(
    database: Database, question: str, course: str = "c1", without: Sequence[str] = ()
) -> list[str]:
    async with database.session() as session:
        hits = await passage_index(database).search(
            session, course, query_units(question), limit=10, without=without
        )
    return [hit.passage_id for hit in hits]


def bodies(**texts: str) -> dict[str, IndexedWords]:
    return {name: words_of(text) for name, text in texts.items()}


async def test_case_cjk_01_finds_words_inside_chinese_sentences(database: Database) -> None:
    case = json.loads((CASES / "CJK-01.json").read_text("utf-8"))
    await fill(database, bodies(**case["input"]["documents"]))
    for query, expected in case["expect"]["first"].items():
        assert (await found(database, query))[:1] == [expected], query
    for query in case["expect"]["empty"]:
        assert await found(database, query) == []


async def test_a_single_chinese_character_is_found_at_any_place_of_a_run(
    database: Database,
) -> None:
    await fill(database, bodies(first="块的大小", last="归还每个块", other="前缀缓存"))
    assert set(await found(database, "块")) == {"first", "last"}


async def test_english_words_match_in_other_forms_and_cases(database: Database) -> None:
    await fill(database, bodies(a="Schedulers preempt requests.", b="Café opening hours"))
    assert await found(database, "preempted SCHEDULER") == ["a"]
    assert await found(database, "cafe") == ["b"]
    assert await found(database, "ＣＡＦÉ") == ["b"]


async def test_a_hit_tells_how_often_and_where_it_has_the_asked_words(database: Database) -> None:
    texts = {"a": words_of("Zebras: the oldest goes; a zebra roams.", "Zebra", "Walrus")}
    await fill(database, texts)
    async with database.session() as session:
        (hit,) = await passage_index(database).search(
            session, "c1", query_units("zebra walrus"), limit=10
        )
    assert hit.words == {"zebra": 5.0, "walrus": 1.0}
    assert hit.columns == {"zebra": "heading text", "walrus": "title"}
    assert hit.num_words == 7


async def test_a_hit_tells_what_each_item_has_with_the_headings_above_it(
    database: Database,
) -> None:
    text = "A zebra.\n\nGnus.\n\n**Walrus**\n\nAnimals:\n\n- a walrus\n- a gizmo on 3 May, 4 May"
    body = " ".join(body_words(text))
    await fill(database, {"a": IndexedWords("gizmo", "zebra walrus", body)})
    async with database.session() as session:
        (hit,) = await passage_index(database).search(
            session, "c1", query_units("when zebra walrus gizmo animals"), limit=10
        )
    titled = {"gizmo": 1.0}
    assert [item.words for item in hit.items] == [
        {"zebra": 3.0, **titled},
        {"zebra": 2.0, **titled},
        {"walrus": 3.0, "anim": 0.5, **titled},
        {"gizmo": 2.0, "ǂhasdate": 1.0, "walrus": 2.0, "anim": 0.5},
    ]
    assert [item.num_words for item in hit.items[:3]] == [2, 1, 2]
    assert hit.words == {
        **{"gizmo": 2.0, "zebra": 4.0, "walrus": 5.0},
        **{"anim": 1.0, "ǂhasdate": 1.0},
    }


async def test_that_several_items_hold_a_date_counts_once(database: Database) -> None:
    bodies = {
        "one": IndexedWords("", "", " ".join(body_words("zebra on 3 May"))),
        "two": IndexedWords("", "", " ".join(body_words("- zebra on 3 May\n- walrus on 4 May"))),
    }
    await fill(database, bodies)
    async with database.session() as session:
        hits = await passage_index(database).search(
            session, "c1", query_units("when zebra"), limit=10
        )
    assert [hit.words["ǂhasdate"] for hit in hits] == [1.0, 1.0]


async def test_words_without_marks_have_no_items(database: Database) -> None:
    await fill(database, {"a": IndexedWords("", "zebra", "zebra roam")})
    async with database.session() as session:
        (hit,) = await passage_index(database).search(session, "c1", query_units("zebra"), limit=10)
    assert hit.items == ()
    assert hit.words == {"zebra": 4.0}


async def test_rare_words_bring_a_passage_among_the_candidates(database: Database) -> None:
    common = {f"p{n}": words_of("The scheduler runs requests.") for n in range(30)}
    await fill(database, {**common, "rare": words_of("The zebra runs.")})
    async with database.session() as session:
        hits = await passage_index(database).search(
            session, "c1", query_units("scheduler zebra"), limit=5
        )
    assert len(hits) == 5
    assert hits[0].passage_id == "rare"


async def test_left_out_materials_take_no_place_of_others(database: Database) -> None:
    await fill(database, {f"h{n}": words_of("zebra zebra") for n in range(20)}, material="hidden")
    await fill(database, bodies(seen="one zebra among many other animals"), material="m2")
    assert await found(database, "zebra", without=["hidden", "unknown"]) == ["seen"]
    assert len(await found(database, "zebra", without=["m2"])) == 10


async def test_courses_do_not_see_each_other(database: Database) -> None:
    await fill(database, bodies(mine="walrus zebra"), course="c1")
    await fill(database, bodies(theirs="walrus zebra"), course="c2")
    assert await found(database, "walrus", course="c1") == ["mine"]
    assert await found(database, "walrus", course="c2") == ["theirs"]
    assert await found(database, "walrus", course="c") == []
    async with database.session() as session:
        counts = await passage_index(database).count(
            session, "c1", query_units("walrus gizmo lab 9")
        )
    assert counts.num_passages == 1
    assert counts.holding == {"walrus": 1, "gizmo": 0, "ǂlab9": 0}


async def test_beginnings_are_counted_and_found(database: Database) -> None:
    unit = QueryUnit(("sched",), prefix=True)
    await fill(database, bodies(a="schedulers", b="schedules", c="shed"))
    index = passage_index(database)
    async with database.session() as session:
        hits = await index.search(session, "c1", [unit], limit=10)
        counts = await index.count(session, "c1", [unit])
    assert {hit.passage_id: list(hit.words) for hit in hits} == {
        "a": ["schedul"],
        "b": ["schedul"],
    }
    assert counts.holding == {"sched": 2}


async def test_a_new_title_replaces_the_old_words_only(database: Database) -> None:
    await fill(database, {"a": words_of("zebra", "Horses", "Lions")})
    async with database.transaction() as session:
        await passage_index(database).retitle(session, "m1", "ǂweek6 tiger")
    assert await found(database, "lions") == []
    for question in ("tiger", "week 6", "horses", "zebra"):
        assert await found(database, question) == ["a"]


async def test_forgotten_materials_are_gone_and_others_stay(database: Database) -> None:
    await fill(database, bodies(a="prefix", b="prefix"))
    await fill(database, bodies(c="prefix", d="prefix"), material="m2")
    async with database.transaction() as session:
        await passage_index(database).forget(session, "m1")
        await passage_index(database).forget(session, "unknown")
        await passage_index(database).forget_passages(session, ["c", "unknown"])
    assert await found(database, "prefix") == ["d"]


@pytest.mark.parametrize(
    "question",
    [
        'prefix" OR "cache',
        "prefix AND NOT cache*",
        "title:prefix ^ NEAR(a b, 2) {body} : -x",
        "'; DROP TABLE passage_fts; --",
        "\x00prefix\x00",
        "course_id : c2",
        "()[]{}*\"'`^:+-",
        "",
        "的 了 吗 the of",
    ],
)
async def test_query_syntax_in_a_question_is_only_text(database: Database, question: str) -> None:
    await fill(database, bodies(a="prefix cache"))
    expected = ["a"] if "prefix" in question or "cache" in question else []
    assert await found(database, question) == expected


@pytest.mark.parametrize("text", ["it's a\\b 'quoted' \\", "x" * 5000, "a.b.c:1A & !(b|c)"])
async def test_any_text_can_be_indexed(database: Database, text: str) -> None:
    await fill(database, {"a": IndexedWords(text, text, f"{text} zebra")})
    assert await found(database, "zebra") == ["a"]


async def test_records_are_found_when_they_hold_everything_that_is_asked(
    database: Database,
) -> None:
    index = record_index(database)
    async with database.transaction() as session:
        for answer, course, text in (
            ("a1", "c1", "When is lab 3 due? On Friday."),
            ("a2", "c1", "实验三什么时候截止？周五。"),
            ("a3", "c1", "When is lab 4 due?"),
            ("a4", "c2", "When is lab 3 due?"),
        ):
            await index.add(session, answer, course, " ".join(index_words(text)))

    async def search(question: str, before: str | None = None) -> list[str]:
        async with database.session() as session:
            return await index.search(session, "c1", query_units(question), limit=10, before=before)

    assert await search("lab 3 friday") == ["a2", "a1"]
    assert await search("实验三") == ["a2", "a1"]
    assert await search("lab 3", before="a2") == ["a1"]
    assert await search("zebra") == []
    assert await search("") == []
    async with database.transaction() as session:
        await index.add(session, "a1", "c1", "zebra")
        await index.forget(session, ["a2", "unknown"])
    assert await search("zebra") == ["a1"]
    assert await search("lab 3") == []


@pytest.mark.parametrize(
    "statement",
    [
        *("_FORGET", "_FORGET_PASSAGES", "_RETITLE", "_FORGET_RECORDS"),
        *("_FORGET_ROWS", "_FORGET_PASSAGE_ROWS", "_FORGET_RECORD_ROWS"),
    ],
)
async def test_what_is_taken_out_of_an_fts_table_is_not_looked_for_in_all_of_it(
    database: Database, statement: str
) -> None:
    if not database.is_sqlite:
        pytest.skip("its tables have indexes")
    wanted = getattr(fts_index, statement)
    values = {"material": "m1", "title": "t", "ids": "[]"}
    used = {name: values[name] for name in wanted.compile().params}
    async with database.session() as session:
        plan = await session.execute(text(f"EXPLAIN QUERY PLAN {wanted.text}"), used)
        steps = [row[3] for row in plan if "json_each" not in row[3]]
    # "INDEX 0:=" goes by row; without the sign, through all rows.
    scans = [step for step in steps if step.startswith("SCAN") and not step.endswith("INDEX 0:=")]
    assert steps
    assert scans == []


async def test_a_record_that_is_added_again_has_its_new_words_alone(database: Database) -> None:
    index = record_index(database)
    async with database.transaction() as session:
        for words in ("kestrel falcon", "heron"):
            await index.add(session, "a1", "c1", words)
        await index.add(session, "a2", "c1", "falcon")

    async def holding(word: str) -> list[str]:
        async with database.session() as session:
            return await index.search(session, "c1", query_units(word), limit=9)

    assert (await holding("kestrel"), await holding("heron")) == ([], ["a1"])
    async with database.transaction() as session:
        await index.forget(session, ["a1", "unknown"])
    assert (await holding("heron"), await holding("falcon")) == ([], ["a2"])
