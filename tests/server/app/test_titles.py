"""Titles of conversations."""

from __future__ import annotations

from datetime import date
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.app.api_replies import attachment
from server.app.conversation_fields import read_title
from server.app.titles import MAX_TITLE_CHARS, file_name, next_title, title_of


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


DAY = date(2026, 11, 30)


@pytest.mark.parametrize(
    ("title", "stem"),
    [
        ("When are office hours?", "When are office hours"),
        ("TCP/IP: what is \\n?", "TCP-IP- what is -n"),
        ("../../etc/passwd", "etc-passwd"),
        ("实验四需要提交什么？", "实验四需要提交什么？"),
        ("<b>50 %</b>", "b50 -b"),
        ("...", "Lectern"),
        ("\u202egpj.exe", "gpj.exe"),
    ],
)
def test_a_file_is_called_after_its_title(title: str, stem: str) -> None:
    assert file_name(title, DAY, "md") == f"{stem} 2026-11-30.md"


@given(st.text(max_size=300))
def test_every_title_makes_a_name_that_file_systems_and_headers_take(title: str) -> None:
    name = file_name(title, DAY, "jsonl")
    assert len(name.encode()) <= 200
    assert not set(name) & set('/\\:*?"<>|%\0\r\n')
    assert not name.startswith((".", " ", "-"))
    plain, wide = attachment(name).split("; filename*=UTF-8''")
    assert unquote(wide) == name
    assert plain.isascii()
    assert plain.count('"') == 2
    assert not set(plain) & set("\\/")


def test_who_reads_no_other_signs_gets_a_name_too() -> None:
    name = file_name("Étude 三", DAY, "md")
    assert 'filename="Etude 2026-11-30.md"' in attachment(name)
    assert 'filename="2026-11-30.md"' in attachment(file_name("实验四", DAY, "md"))
    assert 'filename="a ac 2026-11-30.md"' in attachment(file_name("a＂ ℀", DAY, "md"))
