"""Plain text: paragraphs as they were parted, under headings only where there are some."""

from __future__ import annotations

import pytest

from server.app.materials.document import Document, ParseLimits
from server.app.materials.errors import MaterialError
from server.app.materials.parser import MaterialSource, no_progress
from server.app.materials.text import TextParser

KOREAN = "운영체제 강의 계획서: 과제는 매주 금요일까지 제출해야 합니다. 시험은 유월에. " * 4


def parse(data: bytes, *, encoding: str | None = None, max_chars: int = 10**6) -> Document:
    source = MaterialSource("notes.txt", data, encoding)
    return TextParser().parse(source, ParseLimits(max_chars=max_chars), no_progress)


def test_a_guess_is_told_as_a_warning() -> None:
    assert parse(KOREAN.encode("euc_kr")).warnings == ("encoding_guessed",)
    assert parse(KOREAN.encode()).warnings == ()


def test_a_text_that_ends_in_the_middle_of_a_character_says_so() -> None:
    cut = parse("# 分页\n\n每页四千字节".encode()[:-1])
    assert (cut.encoding, cut.warnings) == ("utf-8", ("text_cut",))
    assert cut.text.endswith("四千字")
    latin = parse("A text in the alphabet of the west ends with a caf\xe9".encode("latin-1"))
    assert "text_cut" not in latin.warnings
    assert latin.text.endswith("caf\xe9")


def test_a_short_first_line_is_the_title_and_paragraphs_are_blocks() -> None:
    document = parse(b"\nOffice hours\n\nTuesday,\n14:00.\n \nRoom 2.\n")
    assert document.title == "Office hours"
    (part,) = document.parts
    assert [block.text for block in part.blocks] == ["Office hours", "Tuesday,\n14:00.", "Room 2."]


def test_a_long_first_line_is_no_title() -> None:
    assert parse(b"word " * 40).title == "notes"


@pytest.mark.parametrize(
    ("data", "code"), [(b"", "no_text"), (b" \n\x00\n", "no_text"), (b"x" * 101, "too_big")]
)
def test_nothing_and_too_much_are_refused(data: bytes, code: str) -> None:
    with pytest.raises(MaterialError) as refused:
        parse(data, max_chars=100)
    assert refused.value.code == code


def test_numbered_lines_are_headings_where_some_have_parts() -> None:
    document = parse(b"FAQ\n\n1. Getting it\n\n  Here.\n\n1.1. Mirrors\n\n  There.\n\n2 Use\n\nSo.")
    assert [(p.headings, [b.text for b in p.blocks]) for p in document.parts] == [
        ((), ["FAQ"]),
        (("1. Getting it",), ["Here."]),
        (("1. Getting it", "1.1. Mirrors"), ["There."]),
        (("2 Use",), ["So."]),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "1. Open it\n\n2. Read it\n\n3. Close it\n\n4. Go",
        "1.5 litres of milk.\n\n2. Eggs,\n\n3. Flour;\n\n1.1. Salt:",
        "3 a long line that goes on\nand on\n\n3.1 as this one\ndoes\n\n4 and this\ntoo",
    ],
)
def test_numbers_alone_make_no_headings(text: str) -> None:
    assert [part.headings for part in parse(text.encode()).parts] == [()]


def test_chapters_and_underlined_lines_are_headings() -> None:
    document = parse("第一章 进程\n\n第一节 调度\n\n公平。\n\nNotes\n=====\n\nMore.".encode())
    assert [part.headings for part in document.parts if part.blocks] == [
        ("第一章 进程", "第一节 调度"),
        ("Notes",),
    ]


def test_a_chinese_word_across_a_line_break_is_whole_again() -> None:
    document = parse("    块表负责逻辑块到物理\n\xa0\xa0\xa0 块的映射。\n    See below.\n".encode())
    assert document.parts[0].blocks[0].text == "块表负责逻辑块到物理块的映射。\nSee below."
    assert "物理\n" in document.text
