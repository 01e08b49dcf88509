"""Which passage stands behind which sentence, and what is shown of the numbers in an answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.app.citations import MARKER, cite, marks_of, without_unknown
from server.app.support import Support

CITATIONS_JS = Path(__file__).parents[3] / "web" / "static" / "js" / "answer" / "citations.js"


@dataclass(frozen=True)
class Source:
    n: int
    text: str
    locator: str = ""


STAFF = Source(
    1,
    "The lecturer is Professor Lin. Office hours are on Tuesday from 14:00 to 16:00 in room B204. "
    "No appointment is needed.",
    "Office hours",
)
GRADES = Source(2, "| Part | Share |\n| --- | --- |\n| Exam | 30% |\n| Labs | 70% |", "Grading")
RULES = Source(3, "迟交的实验报告每天扣百分之十，最多三天。期末考试不允许带笔记。", "迟交")
ALL = [STAFF, GRADES, RULES]


def marked(answer: str, question: str = "?") -> list[tuple[int, str, str, list[str]]]:
    """(number, by, the cited part of the answer, what is marked)."""
    texts = {source.n: source.text for source in ALL}
    return [
        (
            one.n,
            one.by,
            answer[one.start : one.end],
            [texts[one.n][start:end] for start, end in one.marks],
        )
        for one in cite(answer, question, ALL)
    ]


def test_a_sentence_without_a_number_is_matched() -> None:
    answer = "They are on Tuesday, 14:00 to 16:00, in B204. The labs count 70%."
    assert marked(answer, "When are office hours?") == [
        (
            1,
            "match",
            "They are on Tuesday, 14:00 to 16:00, in B204.",
            ["Office hours are on Tuesday from 14:00 to 16:00 in room B204."],
        ),
        (2, "match", "The labs count 70%.", ["| Labs | 70% |"]),
    ]


def test_what_only_names_or_numbers_is_not_matched() -> None:
    said = "Office hours are on Tuesday in room B204."
    heads = "### Office hours: Tuesday, room B204\n\n**Office hours on Tuesday, room B204**"
    answer = f"{heads}\n\n70.\n\n{said}"
    assert [text for _, _, text, _ in marked(answer)] == [said]


def test_chinese_is_matched_as_well() -> None:
    assert marked("迟交每天扣百分之十。", "迟交怎么扣分？") == [
        (3, "match", "迟交每天扣百分之十。", ["迟交的实验报告每天扣百分之十，最多三天。"])
    ]


def test_a_number_of_the_model_goes_before_a_match() -> None:
    answer = "On Tuesday in B204 [1]。考试占 30%【2】, as is said [1, 3]."
    found = [(n, by, text) for n, by, text, _ in marked(answer)]
    assert found == [
        (1, "model", "[1]"),
        (2, "model", "【2】"),
        (1, "model", "[1, 3]"),
        (3, "model", "[1, 3]"),
    ]
    (first, *_) = marked(answer)
    assert first[3] == ["Office hours are on Tuesday from 14:00 to 16:00 in room B204."]


def test_what_no_sentence_says_is_not_cited() -> None:
    assert marked("Yes, you may bring two sheets of notes.", "May I bring notes?") == []
    assert marked("[9]") == []
    assert cite("On Tuesday in room B204.", "?", []) == []
    assert cite("  ", "?", ALL) == []


def test_a_question_that_is_repeated_proves_nothing() -> None:
    """A wrong answer is often the question as a statement, with one word of its own."""
    question = "When are the office hours in room B204?"
    assert marked("The office hours in room B204 are never.", question) == []


def test_several_sentences_of_a_passage_are_marked_where_each_adds_to_it() -> None:
    answer = "Professor Lin has them on Tuesday from 14:00 to 16:00 in B204, no appointment needed."
    ((n, _, _, marks),) = marked(answer)
    assert n == 1
    assert "Office hours are on Tuesday from 14:00 to 16:00 in room B204." in marks
    assert len(marks) >= 2


def test_marks_of_a_passage_are_told_once_and_in_order() -> None:
    answer = (
        "No appointment is needed. On Tuesday, 14:00 to 16:00, room B204. On Tuesday, B204 [1]."
    )
    found = cite(answer, "?", ALL)
    assert {one.n for one in found} == {1}
    assert list(marks_of(found)) == [1]
    ranges = marks_of(found)[1]
    assert ranges == sorted(ranges)
    assert len({tuple(one) for one in ranges}) == len(ranges) == 2


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("On Tuesday [1].", "On Tuesday [1]."),
        ("On Tuesday [9].", "On Tuesday."),
        ("周二【9】。", "周二。"),
        ("Both [1, 9] say so [9][1].", "Both [1] say so[1]."),
        ("Two [7，8] and【1、7】", "Two and【1】"),
        ("`a[9]` and $x[9]$ and a[9] and [9](there)", "`a[9]` and $x[9]$ and a[9] and [9](there)"),
        ("```\nlist [9]\n```\nthen [9]", "```\nlist [9]\n```\nthen"),
        ("in [0, 10]", "in [0, 10]"),
        ("a range of [3, 5] pages", "a range of [3, 5] pages"),
        ("[123] [x] []", "[123] [x] []"),
    ],
)
def test_numbers_without_a_passage_are_not_shown(answer: str, shown: str) -> None:
    assert without_unknown(answer, {1, 2}, ["Read [3, 5] of it."]) == shown


@given(st.text(alphabet="a [1]9,【】`$\n.", max_size=80))
def test_nothing_but_markers_and_blanks_is_left_out(answer: str) -> None:
    shown = without_unknown(answer, {1})
    assert without_unknown(shown, {1, 9, 19, 91, 99, 11}) == shown
    assert len(shown) <= len(answer)
    rest = re.sub(r"[\[\]【】0-9, ]", "", answer)
    assert re.sub(r"[\[\]【】0-9, ]", "", shown) == rest


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_texts_can_be_compared(answer: str, source: str) -> None:
    for one in cite(answer, "why?", [Source(1, source)]):
        assert 0 <= one.start < one.end <= len(answer)
        assert all(0 <= start < end <= len(source) for start, end in one.marks)


def test_the_page_knows_the_same_markers() -> None:
    found = re.search(r"const CITATION = /(.+)/g;", CITATIONS_JS.read_text("utf-8"))
    assert found is not None
    assert found[1].replace("[[【]", r"[\[【]") == MARKER.pattern


def test_shares_grow_with_what_is_said_in_the_passage() -> None:
    support = Support("?", ALL)
    (whole,) = support.of_answer("Office hours are on Tuesday from 14:00 to 16:00 in room B204.")
    (part,) = support.of_answer("On Tuesday from 14:00 to 16:00 and never on Wednesday mornings.")
    assert whole is not None
    assert part is not None
    assert whole.share == 1.0
    assert 0.5 <= part.share < 1.0
