"""Markdown keeps its structure: headings make parts, and what belongs together is a block."""

from __future__ import annotations

import pytest

from server.app.materials.document import Document, ParseLimits
from server.app.materials.markdown import MarkdownParser, markdown_document
from server.app.materials.parser import MaterialSource, no_progress


def parse(text: str, name: str = "lab1.md") -> Document:
    source = MaterialSource(name, text.encode())
    return MarkdownParser().parse(source, ParseLimits(), no_progress)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# A `b` *c*\n", "A b c"),
        ("Title\n=====\n", "Title"),
        ("intro\n\n# Lab 1: *Tokens*\n", "Lab 1: Tokens"),
        ("## Low\n", "lab1"),
        ("no heading\n", "lab1"),
    ],
)
def test_the_title_is_the_first_heading_of_level_1_or_the_file_name(text: str, title: str) -> None:
    assert parse(text).title == title


def test_parts_know_their_heading_path() -> None:
    document = parse("# A\n\none\n\n### B\n\ntwo\n\n## C\n\nthree\n")
    assert [part.headings for part in document.parts if part.blocks] == [
        ("A",),
        ("A", "B"),
        ("A", "C"),
    ]


def test_a_block_takes_the_paragraph_in_front_of_it() -> None:
    (part,) = markdown_document("Steps:\n\n1. one\n2. two\n", "x").parts
    (block,) = part.blocks
    assert (block.kind, block.lead_in, block.text) == ("ordered_list", "Steps:", "1. one\n2. two")


def test_what_makes_no_block_is_still_text() -> None:
    (part,) = markdown_document("[a]: http://example.org/a\n\nSee [a].\n", "x").parts
    assert [block.text for block in part.blocks] == ["[a]: http://example.org/a", "See [a]."]


@pytest.mark.parametrize(
    "text", ["> " * 3000 + "x", "[" * 20000, "*a " * 20000, "- " * 3000 + "x", "`" * 50000]
)
def test_text_that_is_made_to_be_slow_is_read_all_the_same(text: str) -> None:
    document = markdown_document(text, "x")
    assert document.text == text
