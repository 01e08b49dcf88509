"""The splitter keeps structure together, says where a passage stands, and loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.app.passages import (
    Document,
    PassageLimits,
    PassageText,
    Section,
    estimate_tokens,
    first_heading,
    split,
)

SAMPLE = Path(__file__).parents[3] / "server" / "app" / "sample_course"


def passages(
    text: str, *, least: int = 0, most: int = 260, is_markdown: bool = True
) -> list[PassageText]:
    document = Document("Guide", (Section(text, is_markdown=is_markdown),))
    return split(document, limits=PassageLimits(least, most))


def test_each_section_is_a_passage_with_its_path() -> None:
    text = (
        "# Guide\n\nIntro.\n\n## Labs\n\nAll labs.\n\n### Lab *1*\n\nTokens.\n\n## Exam\n\nJune.\n"
    )
    assert [(p.headings, p.locator, p.text) for p in passages(text)] == [
        (("Guide",), "", "Intro."),
        (("Guide", "Labs"), "Labs", "All labs."),
        (("Guide", "Labs", "Lab 1"), "Labs › Lab 1", "Tokens."),
        (("Guide", "Exam"), "Exam", "June."),
    ]


def test_a_list_stays_with_the_sentence_that_leads_into_it() -> None:
    text = "Before.\n\nHand in:\n\n- one file\n- another file\n"
    found = passages(text, most=10)
    assert [p.text for p in found] == ["Before.", "Hand in:\n\n- one file\n- another file"]


def test_a_table_stays_whole_with_its_lead_in() -> None:
    table = "| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |"
    (passage,) = passages(f"The parts:\n\n{table}\n", most=60)
    assert passage.text == f"The parts:\n\n{table}"


def test_a_long_table_repeats_its_head_and_its_lead_in() -> None:
    rows = "\n".join(f"| row {i} | value {i} |" for i in range(40))
    found = passages(f"The parts:\n\n| a | b |\n| --- | --- |\n{rows}\n", most=100)
    assert len(found) > 2
    for passage in found:
        assert passage.text.startswith("The parts:\n\n| a | b |\n| --- | --- |\n| row")
    assert sum(p.text.count("| row") for p in found) == 40


def test_a_long_list_is_cut_between_items() -> None:
    items = "\n".join(f"- item {i} has a few words\n  and a second line" for i in range(30))
    found = passages(f"Do this:\n\n{items}\n", most=100)
    assert len(found) > 2
    for passage in found:
        assert passage.text.startswith("Do this:\n\n- item")
        assert passage.text.count("- item") == passage.text.count("second line")


def test_code_keeps_its_fence_and_blank_lines() -> None:
    code = "```python\ndef f():\n\n    return 1\n```"
    (passage,) = passages(f"Example:\n\n{code}\n")
    assert passage.text == f"Example:\n\n{code}"


def test_long_code_is_cut_into_closed_fences() -> None:
    lines = "\n".join(f"value_{i} = {i}" for i in range(60))
    found = passages(f"```python\n{lines}\n```\n", most=100)
    assert len(found) > 2
    for passage in found:
        assert passage.text.startswith("```python\nvalue_")
        assert passage.text.endswith("\n```")


def test_a_hash_inside_code_is_no_heading() -> None:
    (passage,) = passages("```sh\n# not a heading\n```\n")
    assert passage.headings == ("Guide",)


def test_long_paragraphs_are_cut_between_sentences() -> None:
    text = " ".join(f"Sentence number {i} ends here." for i in range(60))
    found = passages(text, most=80)
    assert len(found) > 3
    assert all(p.text.rstrip().endswith(".") for p in found)
    assert all(estimate_tokens(p.text) <= 80 for p in found)


def test_short_sections_share_a_passage_and_keep_their_headings() -> None:
    text = "# Guide\n\n## One\n\nFirst.\n\n## Two\n\nSecond.\n\n## Three\n\n" + "word " * 60
    first, last = passages(text, least=20)
    assert first.text == "First.\n\n**Two**\n\nSecond."
    assert first.locator == "One, Two"
    assert last.locator == "Three"


def test_a_heading_without_text_is_still_found() -> None:
    (passage,) = passages("# Guide\n\n## Coming soon\n")
    assert passage.text == "Coming soon"
    assert passage.headings == ("Guide", "Coming soon")


def test_a_section_keeps_its_own_locator() -> None:
    document = Document("Slides", (Section("One.", "page 1"), Section("# A\n\nTwo.", "page 2")))
    assert [p.locator for p in split(document)] == ["page 1", "page 2 › A"]


def test_plain_text_has_paragraphs_and_no_headings() -> None:
    (passage,) = passages("# not a heading\n\nBody", is_markdown=False)
    assert passage.text == "# not a heading\n\nBody"
    assert passage.headings == ("Guide",)


@pytest.mark.parametrize(
    ("text", "title"),
    [("# A `b` *c*\n", "A b c"), ("Title\n=====\n", "Title"), ("## Low\n", None), ("", None)],
)
def test_first_heading(text: str, title: str | None) -> None:
    assert first_heading(text) == title


@pytest.mark.parametrize("path", sorted(SAMPLE.glob("*.md")), ids=lambda path: path.name)
def test_sample_course_passages_are_of_a_good_size(path: Path) -> None:
    text = path.read_text("utf-8")
    found = split(Document(first_heading(text) or "", (Section(text),)))
    assert found
    assert all(10 <= estimate_tokens(p.text) <= 400 for p in found)
    assert len({p.headings for p in found}) == len(found), "each section is one passage"


_WORDS = st.integers(0, 10**6).map(lambda n: f"w{n}")
_LINES = st.one_of(
    st.lists(_WORDS, min_size=1, max_size=30).map(" ".join),
    st.builds(lambda n, word: "#" * n + " " + word, st.integers(1, 6), _WORDS),
    st.builds(lambda word: f"- {word}\n  - {word}x", _WORDS),
    st.builds(lambda a, b: f"| {a} | {b} |\n| --- | --- |\n| {b} | {a} |", _WORDS, _WORDS),
    st.builds(lambda word: f"```\n{word}\n\n{word}y\n```", _WORDS),
    st.builds(lambda word: f"> {word}\n> 1. {word}", _WORDS),
    st.builds(lambda word: f"<div>{word}</div>", _WORDS),
    st.builds(lambda word: f"[{word}]: http://example.org/{word}", _WORDS),
    st.sampled_from(["", "---", "===", "```", "|", "    code", "\t", "中文，没有空格。"]),
)


@given(st.lists(_LINES, max_size=25), st.integers(24, 200), st.booleans())
def test_no_word_is_lost(lines: list[str], most: int, is_markdown: bool) -> None:
    text = "\n".join(lines)
    found = passages(text, least=most // 4, most=most, is_markdown=is_markdown)
    # A word longer than a whole passage may lie in two: blanks do not count.
    parts = [*(p.text for p in found), *(heading for p in found for heading in p.headings)]
    kept = "".join("".join(parts).split())
    for word in text.replace("|", " ").replace("<div>", "").replace("</div>", "").split():
        if word.strip("#->`=.:[]0123456789") and word.startswith("w"):
            assert word in kept


@given(st.text(max_size=400), st.integers(1, 60))
def test_any_text_can_be_split(text: str, most: int) -> None:
    for passage in passages(text, most=most):
        assert passage.text.strip()
