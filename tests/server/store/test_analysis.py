"""Words of texts and of questions: what they are, and that a text is found by its own."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.store.analysis import (
    QueryUnit,
    _longest,
    index_words,
    numbered_kind,
    query_units,
    title_words,
)
from server.store.concepts import CONCEPTS, KEY_MARK, concepts
from server.store.dates import date_key


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


def words_asked(question: str) -> set[tuple[str, ...]]:
    return {unit.words for unit in query_units(question) if unit.is_asked}


def test_questions_ask_for_their_content_words_only() -> None:
    assert words_asked("What is the zebra of a walrus?") == {("zebra",), ("walrus",)}
    assert words_asked("实验四需要提交什么？") == {("ǂlab4",), ("ǂsubmit",), ("ǂcommit",)}


def test_plain_words_count_for_less() -> None:
    (light,) = query_units("solve")[1:] or query_units("wonder")
    (zebra,) = query_units("zebra")
    assert 0 < light.weight < zebra.weight == 1


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Where is the Kestrel Building?", {("ǂroom",), ("kestrel", "build")}),
        ("Where is the Zebra Walrus", {("ǂroom",), ("zebra", "walrus")}),
        ("Zebra Walrus", {("zebra",), ("walrus",)}),
    ],
)
def test_a_name_of_several_words_is_one_thing(question: str, words: set[tuple[str, ...]]) -> None:
    assert words_asked(question) == words


@pytest.mark.parametrize(
    ("english", "chinese", "concept"),
    [
        ("When are office hours?", "什么时候答疑？", "ǂofficehours"),
        ("Is there a resit?", "有补考吗", "ǂmakeup"),
        ("the deadlock", "死锁", "ǂdeadlock"),
        ("calibrating it", "怎么标定", "ǂcalibrate"),
    ],
)
def test_both_languages_name_a_concept_alike(english: str, chinese: str, concept: str) -> None:
    for text in (english, chinese):
        assert (concept,) in words_asked(text)
        assert concept in index_words(text)


def test_what_lies_in_a_longer_phrase_is_not_asked_for() -> None:
    assert words_asked("office hours") == {("ǂofficehours",)}
    assert "ǂminute" in index_words("office hours")


def test_words_that_mean_several_things_count_once() -> None:
    weights = [unit.weight for unit in query_units("期末") if unit.is_asked]
    assert len(weights) > 1
    assert sum(weight**2 for weight in weights) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ("how is the final grade made up", {"weight", "grade"}, {"final", "exam", "makeup"}),
        ("what is the final mark made up of", {"weight", "grade"}, {"final", "exam", "makeup"}),
        ("when is the final", {"final", "exam"}, {"makeup"}),
        ("can a missed quiz be made up", {"makeup"}, {"weight"}),
        ("after the grade, made up quickly", {"grade", "makeup"}, {"weight"}),
    ],
)
def test_neighbours_decide_what_a_phrase_means(
    text: str, wanted: set[str], unwanted: set[str]
) -> None:
    found = {key.removeprefix(KEY_MARK) for key, _, _ in concepts(text)}
    assert found >= wanted
    assert not found & unwanted


def test_concepts_have_keys_that_are_words_of_the_index() -> None:
    for key, phrases in CONCEPTS.items():
        assert key.isascii()
        assert key.isalpha()
        assert phrases


@pytest.mark.parametrize(
    "text",
    [
        *("2026-10-05", "2026/10/5", "on 5 October", "October 5th, 2026", "the 5th of October"),
        *("Oct 5", "10 月 5 日", "10月5号"),
    ],
)
def test_dates_have_one_name(text: str) -> None:
    key = date_key(date(2026, 10, 5))
    assert key in index_words(text)
    assert QueryUnit((key,), weight=1.5, is_number=True) in query_units(text)


@pytest.mark.parametrize("text", ["2026-13-05", "10:05", "5 10", "may 14:00", "32 October"])
def test_what_is_no_date_has_no_date_word(text: str) -> None:
    assert not [word for word in index_words(text) if word.startswith("ǂd") and word[2].isdecimal()]


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("When is it?", "on 5 October"),
        ("哪天截止", "10 月 5 日"),
        ("What time does it open?", "from 9:30"),
        ("How long may I keep it?", "for two weeks"),
        ("多久", "三个小时"),
        ("How much does the report count?", "20 % of the total"),
        ("报告占多少", "占三成"),
        ("how big may the file be", "smaller than 2 MB"),
        ("页有多大", "每页 512 字节"),
        ("How much does the reader cost?", "9 euros"),
        ("打印多少钱", "每张 2 元"),
        ("How many people are in a team?", "teams of two"),
        ("几个人一组", "三人一组"),
        ("How many pages may it have?", "at most four pages"),
        ("不能超过几页", "不超过 4 页"),
    ],
)
def test_a_question_for_a_kind_of_fact_prefers_texts_that_have_one(
    question: str, text: str
) -> None:
    wanted = {word for unit in query_units(question) if not unit.is_asked for word in unit.words}
    assert wanted & set(index_words(text))
    assert not wanted & set(index_words("no such thing here"))


@pytest.mark.parametrize("said", ["doesn't", "doesn’t", "doesnt", "I'd", "it's", "we'll"])
def test_contractions_ask_for_nothing(said: str) -> None:
    assert query_units(f"{said} zebra") == query_units("zebra")


@pytest.mark.parametrize(
    "question",
    [
        *("when is it", "And when may zebras roam?", "when zebras roam", "until when?"),
        *("Zebras roam when?", "I want to know when zebras roam", "Walrus: when can it swim?"),
    ],
)
def test_when_asks_for_a_date(question: str) -> None:
    assert ("ǂhasdate",) in {unit.words for unit in query_units(question)}


@pytest.mark.parametrize(
    "question",
    ["What happens when I add a zebra?", "When zebras roam, what happens?", "why roam when wet"],
)
def test_when_as_a_condition_asks_for_none(question: str) -> None:
    assert ("ǂhasdate",) not in {unit.words for unit in query_units(question)}


@pytest.mark.parametrize(
    ("question", "is_value"),
    [
        *(("What does walrus mean?", False), ("does that mean no zebra", False)),
        *(("the mean of zebra", True), ("Do zebras roam? And the mean weight?", True)),
    ],
)
def test_mean_as_a_verb_is_no_mean_value(question: str, is_value: bool) -> None:
    assert (("ǂaverage",) in {unit.words for unit in query_units(question)}) is is_value


def test_a_row_of_a_table_is_about_the_number_in_it() -> None:
    words = index_words("| Week | 实验 | Seats |\n| --- | --- | --- |\n| 6 | 3 | 40 |\n\n7 | 8")
    assert {word for word in words if word[-1].isdecimal() and word[0] == "ǂ"} == {
        "ǂweek6",
        "ǂlab3",
    }


def test_a_title_tells_the_week_and_the_kind_and_insists_on_numbers() -> None:
    words = title_words("Zebras", "lab3.md", kind="lab", week=6).split()
    assert words.count("ǂlab3") == words.count("ǂweek6") == 3
    assert words.count("zebra") == 1
    assert "ǂlab" in words
    assert title_words("Zebras", "z.md", kind="other") == title_words("Zebras", "z.md")


def test_numbered_things_know_their_kind() -> None:
    assert [numbered_kind(unit) for unit in query_units("lab 12 zebra")] == ["ǂlab", None]


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


SPANS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 12), st.integers(1, 5)).map(
        lambda one: (one[0], one[1], one[1] + one[2])
    ),
    max_size=12,
)


@given(SPANS)
def test_of_phrases_within_each_other_the_longest_stay(found: list[tuple[str, int, int]]) -> None:
    expected = [
        (key, start, end)
        for key, start, end in found
        if not any(
            begin <= start and end <= stop and stop - begin > end - start
            for _, begin, stop in found
        )
    ]
    assert _longest(iter(found)) == expected


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ["实验报告提交截止日期期末考试成绩", "the lab report deadline, "])
def test_a_long_text_is_read_in_no_time(text: str) -> None:
    """Eight times as much as a question may have; word by word with all others it took minutes."""
    assert query_units(text * (80_000 // len(text)))
