"""Where sentences stand, in prose, lists, tables and code."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.app.sentences import is_heading, sentences


def texts(text: str) -> list[str]:
    return [text[one.start : one.end] for one in sentences(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "It is due on Friday. Late work loses 10%.",
            ["It is due on Friday.", "Late work loses 10%."],
        ),
        ("截止日期是周五。迟交每天扣百分之十！", ["截止日期是周五。", "迟交每天扣百分之十！"]),
        (
            "See e.g. the notes on p. 41 or 3.5 of them.",
            ["See e.g. the notes on p. 41 or 3.5 of them."],
        ),
        (
            "Ask Dr. Lin or Prof. Yue about polling vs. SSE. No. Ask Omar.",
            ["Ask Dr. Lin or Prof. Yue about polling vs. SSE.", "No.", "Ask Omar."],
        ),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("On Tuesday. [1] In B204 [2].", ["On Tuesday. [1]", "In B204 [2]."]),
        ("周二。[1]在 B204。", ["周二。[1]", "在 B204。"]),
        ("One line\nthat goes on. Next.", ["One line\nthat goes on.", "Next."]),
        ("# Title\nText here.\n\nMore", ["# Title", "Text here.", "More"]),
        (
            "Bring:\n- a pen\n- two books. Or three.\n1. last",
            ["Bring:", "- a pen", "- two books.", "Or three.", "1. last"],
        ),
        (
            "Try this:\n```\na = 1. B\nb = 2\n```\nDone.",
            ["Try this:", "a = 1. B", "b = 2", "Done."],
        ),
        ("", []),
        (" \n\n ", []),
    ],
)
def test_sentences_of(text: str, found: list[str]) -> None:
    assert texts(text) == found


def test_a_row_of_a_table_says_the_names_of_its_columns() -> None:
    text = "Weights:\n\n| Part | Share |\n| --- | --- |\n| Exam | 30% |\n| Labs | 70% |\n\nEnd."
    found = sentences(text)
    assert [text[one.start : one.end] for one in found] == [
        "Weights:",
        "| Exam | 30% |",
        "| Labs | 70% |",
        "End.",
    ]
    assert found[1].words == "Part: Exam; Share: 30%"
    assert found[3].words == "End."


def test_lists_and_tables_are_told_from_prose_and_from_each_other() -> None:
    text = (
        "Bring:\n- a pen\n- paper\n\nNot:\n\n1. a phone\n\n2. notes. Or books.\n\n"
        "| Exam | 30% |\n| --- | --- |\n| Labs | 70% |\n\nEnd.\n\n| of | another |"
    )
    assert [(text[one.start : one.end], one.listed) for one in sentences(text)] == [
        *(("Bring:", 0), ("- a pen", 1), ("- paper", 1), ("Not:", 0)),
        *(("1. a phone", 2), ("2. notes.", 2), ("Or books.", 2)),
        *(("| Labs | 70% |", 3), ("End.", 0), ("| of | another |", 4)),
    ]


@given(st.text(alphabet="ab .。!\n|-`#[1]一二", max_size=120))
def test_every_visible_character_of_prose_is_in_one_sentence(text: str) -> None:
    found = sentences(text)
    ends = [(one.start, one.end) for one in found]
    assert ends == sorted(ends)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(ends))
    assert all(text[a:b] == text[a:b].strip() != "" for a, b in ends)
    if "|" not in text and "`" not in text:
        between = [
            text[a[1] : b[0]] for a, b in zip([(0, 0), *ends], [*ends, (len(text), 0)], strict=True)
        ]
        assert "".join(between).strip() == ""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("### Step 1: Preemption", True),
        ("**Step 1: Preemption**", True),
        ("1. **Preemption**:", True),
        ("**Preemption** frees blocks.", False),
        ("**a** and **b**", False),
        ("Preemption frees blocks.", False),
    ],
)
def test_a_line_that_only_names_what_comes(line: str, expected: bool) -> None:
    assert is_heading(line) is expected
