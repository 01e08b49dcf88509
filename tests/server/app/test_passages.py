"""The splitter keeps structure together, says where a passage stands, and loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.app.materials.document import (
    Block,
    Document,
    Part,
    PassageLimits,
    PassageText,
    Place,
)
from server.app.materials.markdown import markdown_document
from server.app.materials.text import paragraphs
from server.app.passages import estimate_tokens, split

SAMPLE = Path(__file__).parents[3] / "server" / "app" / "sample_course"


def passages(
    text: str, *, least: int = 0, most: int = 260, is_markdown: bool = True
) -> list[PassageText]:
    if is_markdown:
        document = markdown_document(text, "Guide")
    else:
        document = Document("Guide", (Part((), tuple(paragraphs(text))),), text, "text")
    return split(document, PassageLimits(least, most))


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
    first, last = passages(text, least=20, most=75)
    assert first.text == "First.\n\n**Two**\n\nSecond."
    assert first.locator == "One, Two"
    assert last.locator == "Three"


def test_a_short_section_joins_a_long_one_only_under_the_same_heading() -> None:
    long = "word " * 60
    text = f"## One\n\n### A\n\n{long}\n\n### B\n\nShort.\n\n## Two\n\n### C\n\n{long}"
    first, last = passages(text, least=20)
    assert first.locator == "One › A, B"
    assert first.text.endswith("**B**\n\nShort.")
    assert last.locator == "Two › C"


def test_a_section_and_the_one_inside_it_have_the_path_of_the_inner_one() -> None:
    (passage,) = passages("## Labs\n\nFour of them.\n\n### Lab 1\n\nTokens.\n", least=20)
    assert passage.locator == "Labs › Lab 1"
    assert passage.text == "Four of them.\n\n**Lab 1**\n\nTokens."


def test_a_part_without_heading_may_follow_one_with_a_heading() -> None:
    parts = [Part(("Hi",), (Block("paragraph", "a"),)), Part((), (Block("paragraph", "b"),))]
    (passage,) = split(Document("Slides", tuple(parts), "", "pptx"), PassageLimits(20, 100))
    assert (passage.locator, passage.text) == ("Hi", "a\n\nb")


def test_a_long_section_is_cut_into_passages_of_about_one_size() -> None:
    text = "\n\n".join("word " * 40 for _ in range(9))  # 48 tokens each
    sizes = [p.num_tokens for p in passages(text, least=150, most=400)]
    assert sizes == [192, 240]


def test_a_heading_without_text_is_still_found() -> None:
    (passage,) = passages("# Guide\n\n## Coming soon\n")
    assert passage.text == "Coming soon"
    assert passage.headings == ("Guide", "Coming soon")


def test_a_passage_says_from_where_to_where_it_runs() -> None:
    blocks = [Block("paragraph", f"Paragraph {n}.", place=Place(page=n)) for n in (1, 1, 2)]
    parts = (Part(("A",), tuple(blocks)), Part(("B",), (blocks[2],)))
    found = split(Document("Slides", parts, "", "pdf"), PassageLimits(0, 100))
    assert [p.locator for p in found] == ["pp. 1–2 › A", "p. 2 › B"]
    assert [p.place for p in found] == [Place(page=1, to_page=2), Place(page=2)]


def test_a_piece_of_a_long_table_says_which_rows_it_has() -> None:
    rows = "\n".join(f"| row {i} | value {i} |" for i in range(2, 42))
    table = Block("table", rows, head="| a | b |\n| --- | --- |\n", place=Place(row=2, to_row=41))
    found = split(Document("Sheet", (Part((), (table,)),), "", "csv"), PassageLimits(0, 100))
    assert len(found) > 2
    for passage in found:
        numbers = [int(line.split()[2]) for line in passage.text.split("\n")[2:]]
        assert (passage.place.row, passage.place.to_row) == (numbers[0], numbers[-1])
    assert sum(p.text.count("| row") for p in found) == 40


def test_plain_text_has_paragraphs_and_no_headings() -> None:
    (passage,) = passages("# not a heading\n\nBody", is_markdown=False)
    assert passage.text == "# not a heading\n\nBody"
    assert passage.headings == ("Guide",)


@pytest.mark.parametrize("path", sorted(SAMPLE.glob("*.md")), ids=lambda path: path.name)
def test_sample_course_passages_are_of_a_good_size(path: Path) -> None:
    found = split(markdown_document(path.read_text("utf-8"), path.stem))
    sizes = [p.num_tokens for p in found]
    assert max(sizes) <= 400
    assert len(sizes) == 1 or min(sizes) >= 100
    assert len({p.headings for p in found}) == len(found)


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


def test_a_title_alone_is_a_passage() -> None:
    (only,) = passages("# Closed on Friday", is_markdown=True)
    assert (only.text, only.headings) == ("Closed on Friday", ("Closed on Friday",))
    assert passages("", is_markdown=True) == []


@given(st.text(max_size=400), st.integers(1, 60))
def test_any_text_can_be_split(text: str, most: int) -> None:
    for passage in passages(text, most=most):
        assert passage.text.strip()
