"""Which passage stands behind which sentence, and what is shown of the numbers in an answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.app.citations import (
    MARKER,
    cite,
    cite_cut,
    claims_something,
    marks_of,
    with_numbers,
    without_unknown,
)
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


def numbered(answer: str, *sentences: tuple[str, int]) -> str:
    """`answer` with the numbers of what was matched with these sources."""
    stored = [
        {"n": n, "start": answer.index(part), "end": answer.index(part) + len(part), "by": "match"}
        for part, n in sentences
    ]
    return with_numbers(answer, stored, {1, 2})


def test_a_matched_sentence_gets_its_number_where_it_ends() -> None:
    assert numbered("It opens. It closes.", ("It opens.", 1), ("It closes.", 2)) == (
        "It opens. [1] It closes. [2]"
    )
    assert numbered("It opens. It closes.", ("It opens.", 3)) == "It opens. It closes."


def test_neighbours_of_one_source_share_a_number() -> None:
    both = (("It opens.", 1), ("It closes.", 1))
    assert numbered("It opens. It closes.", *both) == "It opens. It closes. [1]"
    assert numbered("It opens.\n\nIt closes.", *both) == "It opens. [1]\n\nIt closes. [1]"


def test_a_number_never_breaks_a_table_or_code() -> None:
    table = "| a | b |\n| - | - |\n| it | opens |\n"
    assert numbered(table, ("| it | opens |", 1)) == table.replace("opens |", "opens [1] |")
    code = "```\nx = 1\ny = 2\n```\nEnd."
    for part in ("x = 1", "y = 2\n```"):
        assert numbered(code, (part, 1)) == code
    assert numbered("1.\n\nYes.", ("1.", 1)) == "1.\n\nYes."


def unproved(answer: str, question: str = "?") -> list[str]:
    """What of an answer no passage supports, in its own words."""
    return [answer[one.start : one.end] for one in cite(answer, question, ALL) if one.by == "none"]


def test_the_part_of_an_answer_that_nothing_supports_is_told() -> None:
    known = "Office hours are on Tuesday from 14:00 to 16:00 in room B204."
    made_up = "The dean is Professor Whitfield, who was appointed in spring."
    question = "When are office hours and who is the dean?"
    assert unproved(f"{known} {made_up}", question) == [made_up]
    [one] = [one for one in cite(f"{known} {made_up}", question, ALL) if one.by == "none"]
    assert (one.n, one.marks) == (0, ())
    short = "The dean is Dr. Smith."
    assert unproved(f"{known} {short}", question) == [short]
    zh = "期末考试不允许带笔记。院长是张伟教授，他的办公室在图书馆三楼。"
    assert unproved(zh, "期末考试可以带笔记吗？院长是谁？") == [
        "院长是张伟教授，他的办公室在图书馆三楼。"
    ]
    assert 0 not in marks_of(cite(f"{known} {made_up}", question, ALL))


@pytest.mark.parametrize(
    "said",
    [
        *("I hope this helps!", "Yes.", "Here is what the course materials say about that:"),
        *("希望这对你有帮助。", "具体安排如下：", "Would you like to know anything more about it?"),
        *("# Some heading about quite different things", "**Nothing that anybody has written**"),
        "```\nprint(dean.office, whitfield, library, building)\n```",
        # Cut in mid-sentence: nobody knows what it would have said.
        "The dean of the whole faculty is Professor Whitfi",
        # Who names a source is held to it elsewhere.
        "The dean is Professor Whitfield, appointed in spring [1].",
    ],
)
def test_what_claims_nothing_is_not_told(said: str) -> None:
    answer = f"Office hours are on Tuesday from 14:00 to 16:00 in room B204.\n\n{said}"
    assert unproved(answer) == []


def test_an_answer_without_any_support_is_told_as_a_whole() -> None:
    answer = "The dean is Professor Whitfield, who was appointed in spring."
    assert cite(answer, "Who is the dean?", ALL) == []


KNOWN = "Office hours are on Tuesday from 14:00 to 16:00 in room B204."


@pytest.mark.parametrize(
    ("answer", "is_judged"),
    [
        ("", False),
        ("The dean of the whole faculty is Professor Whitfi", False),
        ("The dean is Dr. Smith. She likes green tea and", False),
        # A lead and a heading claim nothing.
        ("# The whole faculty of science\n\nHere is what is known about the dean:\n\n1. Dr", False),
        ("The dean is Dr. Smith. She likes green tea and music. Her off", True),
        ("The dean is Professor Whitfield, who has been appointed in spring. Her off", True),
        ("院长是张伟教授。他的办公室在图书馆三楼。他毕业", True),
        ("院长是张伟教授。他的办公室在图书", False),
    ],
)
def test_a_cut_answer_is_judged_by_what_is_complete(answer: str, is_judged: bool) -> None:
    for passages in (ALL, []):
        found = cite_cut(answer, "Who is the dean?", passages)
        assert found == ([] if is_judged else None)


def test_a_cut_answer_with_some_support_is_told_as_a_complete_one() -> None:
    cut = f"{KNOWN} The dean is Dr. Smith. She was appointed in the spr"
    found = cite_cut(cut, "When are office hours and who is the dean?", ALL)
    assert found is not None
    told = [(one.n, one.by, cut[one.start : one.end]) for one in found]
    assert told == [(1, "match", KNOWN), (0, "none", "The dean is Dr. Smith.")]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Which lab do you mean?", False),
        ("10", False),
        ("**40%**", False),
        ("Here is the code:\n\n```python\nprint(1)\n```", False),
        ("您指的是哪个实验？", False),
        ("Yes.", True),
        ("It opens at nine. Anything else?", True),
        ("九点开门。", True),
    ],
)
def test_what_says_nothing_needs_no_support(answer: str, expected: bool) -> None:
    assert claims_something(answer) is expected
