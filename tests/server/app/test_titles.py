"""Titles of conversations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.app.conversation_fields import read_title
from server.app.titles import MAX_TITLE_CHARS, next_title, title_of


def test_titles_are_numbered() -> None:
    assert next_title("Hours") == "Hours (2)"
    assert next_title("Hours (2)") == "Hours (3)"
    assert next_title("Year (1999)") == "Year (1999) (2)"


@pytest.mark.parametrize("title", ["x" * 200, "x" * 196 + " (9)", "x" * 194 + " (999)"])
def test_a_numbered_title_is_one_that_could_be_given(title: str) -> None:
    for _ in range(3):
        title = next_title(title)
        assert len(title) <= MAX_TITLE_CHARS
        assert read_title(title) == title
    assert title.startswith("x" * 180)
    assert title.endswith(")")


@pytest.mark.parametrize("sign", ["\u202e", "\u2066", "\u200f", "\u061c", "\x07"])
def test_a_question_turns_no_direction_in_the_list(sign: str) -> None:
    assert title_of(f"{sign}When?{sign} And where?") == "When? And where?"


@given(st.text())
def test_every_title_of_a_question_could_be_given(question: str) -> None:
    title = title_of(question)
    assert title == "" or read_title(title) == title
