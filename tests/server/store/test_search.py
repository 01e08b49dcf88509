"""The full-text table: what it finds, in which order, and that queries cannot break it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.store.analysis import index_words, query_units
from server.store.database import Database
from server.store.search import (
    IndexedText,
    count_words,
    forget_passages,
    index_passages,
    search_passages,
)

pytestmark = pytest.mark.anyio

CASES = Path(__file__).parents[2] / "cases"


async def fill(database: Database, texts: Sequence[IndexedText], course: str = "c1") -> None:
    async with database.transaction() as session:
        await index_passages(session, course, texts)


async def found(database: Database, question: str, course: str = "c1") -> list[str]:
    async with database.session() as session:
        hits = await search_passages(session, course, query_units(question), limit=10)
    return [hit.passage_id for hit in hits]


def bodies(**texts: str) -> list[IndexedText]:
    return [IndexedText(name, "", "", text) for name, text in texts.items()]


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


async def test_a_word_in_a_heading_counts_more_than_one_in_the_text(database: Database) -> None:
    await fill(
        database,
        [
            IndexedText("text", "Rules", "Other", "The eviction comes last."),
            IndexedText("heading", "Rules", "Eviction", "The oldest goes first of all."),
        ],
    )
    assert (await found(database, "eviction"))[0] == "heading"


async def test_courses_do_not_see_each_other(database: Database) -> None:
    await fill(database, bodies(mine="prefix cache"), course="c1")
    await fill(database, bodies(theirs="prefix cache"), course="c2")
    assert await found(database, "prefix", course="c1") == ["mine"]
    assert await found(database, "prefix", course="c2") == ["theirs"]
    assert await found(database, "prefix", course="c") == []
    async with database.session() as session:
        counts = await count_words(session, "c1", query_units("prefix cache lab 9"))
    assert counts.num_passages == 1
    assert counts.holding == {"prefix": 1, "cach": 1, "ǂlab9": 0}


async def test_forgotten_passages_are_gone_and_others_stay(database: Database) -> None:
    await fill(database, bodies(a="prefix", b="prefix"))
    async with database.transaction() as session:
        await forget_passages(session, "c1", ["a", "unknown"])
    assert await found(database, "prefix") == ["b"]


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


@pytest.mark.parametrize(
    "question",
    ["Lab 4", "lab4", "LAB  ４", "lab four", "the fourth lab", "4th lab", "Labs 3 to 5", "lab #4",
     "实验四", "实验4", "实验 4", "第四次实验", "第 4 个实验", "第4次实验", "labs 1 and 4"],
)  # fmt: skip
def test_numbered_things_have_one_name(question: str) -> None:
    assert "ǂlab4" in {word for unit in query_units(question) for word in unit.words}
    assert "ǂlab4" in index_words(f"About {question}.")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("第十二周讲什么", "ǂweek12"),
        ("第 14 周", "ǂweek14"),
        ("week 2", "ǂweek2"),
        ("第三讲", "ǂlecture3"),
        ("第二十章", "ǂchapter20"),
    ],
)
def test_numbers_of_weeks_lectures_and_chapters(text: str, word: str) -> None:
    assert word in index_words(text)


@pytest.mark.parametrize("text", ["四次实验", "讲一下实验", "实验一样重要", "40 labs", "lab"])
def test_counts_are_no_numbers_of_things(text: str) -> None:
    assert not [word for word in index_words(text) if word.startswith("ǂlab") and word != "ǂlab"]


def test_questions_ask_for_their_content_words_only() -> None:
    assert [unit.words for unit in query_units("What is the size of a block?")] == [
        ("size",),
        ("block",),
    ]
    words = {word for unit in query_units("实验四需要提交什么？") for word in unit.words}
    assert words == {"ǂlab4", "ǂsubmit"}


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Where is the Kestrel Building?", {("kestrel", "build")}),
        ("Where Is The Kestrel Building", {("kestrel",), ("build",)}),
        ("Kestrel Building opening", {("kestrel",), ("build",), ("open",)}),
    ],
)
def test_a_name_of_several_words_is_one_thing(question: str, words: set[tuple[str, ...]]) -> None:
    assert {unit.words for unit in query_units(question)} == words


def test_both_languages_name_a_concept_alike() -> None:
    assert [u.words for u in query_units("When are office hours?")] == [("ǂofficehours",)]
    assert [u.words for u in query_units("什么时候答疑？")] == [("ǂofficehours",)]


@given(st.text(max_size=80))
def test_any_text_has_plain_words(text: str) -> None:
    for word in index_words(text):
        assert word
        assert not any(character.isspace() or character in "\"'*:()" for character in word)


@given(st.text(alphabet="调度器分块预填充的 ab1", min_size=1, max_size=12))
def test_what_a_text_says_is_found_in_it(text: str) -> None:
    """Every unit of a question that is the text itself is covered by the text's own words."""
    words = set(index_words(text))
    for unit in query_units(text):
        if unit.prefix:
            assert any(word.startswith(unit.words) for word in words)
        else:
            assert words.intersection(unit.words)
