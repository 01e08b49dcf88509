"""What a file's name tells, and what of it is shown."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.app.materials.naming import MAX_NAME_CHARS, NameGuess, guess, shown_name, shown_path


@pytest.mark.parametrize(
    ("name", "kind", "week"),
    [
        ("lab3.md", "lab", None),
        ("实验三.docx", "lab", None),
        ("第三次作业.pdf", "lab", None),
        ("HW2_final_version.pdf", "exam", None),
        ("hw2.pdf", "lab", None),
        ("lecture-07.pdf", "lecture", None),
        ("week05/slides.pptx", "lecture", 5),
        ("第5周 课件.pdf", "lecture", 5),
        ("第十二周/实验报告要求.docx", "lab", 12),
        ("Week 12 lab.docx", "lab", 12),
        ("W3-notes.md", "lecture", 3),
        ("syllabus.en.md", "admin", None),
        ("课程大纲.docx", "admin", None),
        ("exam-rules.zh.md", "exam", None),
        ("期末考试复习.pdf", "exam", None),
        ("week02/week03.md", "lecture", 3),
        ("exams/week4/2019.pdf", "lecture", 4),
        ("week99.md", "lecture", None),
        ("weekend hours.md", "other", None),
        ("Opens on Saturdays", "other", None),
        ("周末 week 3.md", "lecture", 3),
        ("labor.txt", "other", None),
        ("picture.png", "other", None),
        ("", "other", None),
    ],
)
def test_kind_and_week_are_guessed(name: str, kind: str, week: int | None) -> None:
    found = guess(name)
    assert (found.kind, found.week) == (kind, week)


@pytest.mark.parametrize(
    ("given_name", "shown"),
    [
        ("../../../../tmp/escaped_marker.txt", "escaped_marker.txt"),
        ("C:\\Users\\me\\lab.pdf", "lab.pdf"),
        ("/etc/passwd", "passwd"),
        ("..", ""),
        ("", ""),
        ("a\x00b\r\nc.md", "abc.md"),
        ("cod\u202egpj.exe.md", "codgpj.exe.md"),
        ("lone\ud800.md", "lone?.md"),
        ("  实验三.pdf ", "实验三.pdf"),
        ("cafe\u0301.txt", "café.txt"),
    ],
)
def test_a_name_is_its_last_part_in_one_line(given_name: str, shown: str) -> None:
    assert shown_name(given_name) == shown


def test_a_long_name_keeps_its_ending() -> None:
    name = shown_name("实" * 500 + ".docx")
    assert len(name) <= MAX_NAME_CHARS
    assert name.endswith("….docx")


def test_a_path_keeps_its_folders_but_never_climbs() -> None:
    assert shown_path("week05/lab3.md") == "week05/lab3.md"
    assert shown_path("/../a/./..//b\\c.md") == "a/b/c.md"
    assert shown_path("../..") == ""
    deep = shown_path("/".join(["folder"] * 100) + "/x.md")
    assert len(deep) <= MAX_NAME_CHARS
    assert deep.endswith("folder/x.md")


@given(st.text())
def test_any_name_can_be_shown(given_name: str) -> None:
    name, path = shown_name(given_name), shown_path(given_name)
    assert len(name) <= MAX_NAME_CHARS
    assert len(path) <= MAX_NAME_CHARS
    assert "/" not in name
    assert "\\" not in path
    assert not {"", ".", ".."} & set(path.split("/")) or path == ""
    assert not {"Cc", "Cf", "Cs", "Zl", "Zp"} & set(map(unicodedata.category, path))
    name.encode("utf-8")
    assert isinstance(guess(given_name), NameGuess)
