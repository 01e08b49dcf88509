"""Where passages stand in their materials, and the part of a text around them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.app.material_place import around, find, part
from server.app.materials.markdown import markdown_document
from server.app.passages import split

_WORDS = st.sampled_from(["page", "table", "kernel", "x1", "资料", "实验", "的", "naïve", "№7"])
_BLANKS = st.sampled_from([" ", "\n", "  \n", "\n\n", "\t", " \u3000"])
_TEXTS = st.lists(st.tuples(_WORDS, _BLANKS), min_size=1, max_size=60)


@given(before=_TEXTS, words=_TEXTS, after=_TEXTS, data=st.data())
def test_a_passage_is_found_whatever_its_blanks(
    before: list[tuple[str, str]],
    words: list[tuple[str, str]],
    after: list[tuple[str, str]],
    data: st.DataObject,
) -> None:
    head, tail = "".join(w + b for w, b in before), "".join(b + w for w, b in after)
    # Names that occur nowhere else hold it in its place.
    core = "Alpha " + "".join(w + b for w, b in words) + "Omega"
    text = head + core + tail
    spaced = "Alpha " + "".join(w + data.draw(_BLANKS) for w, _ in words) + "Omega"
    assert find(text, spaced) == (len(head), len(head) + len(core))


@given(
    words=st.lists(st.tuples(_WORDS, _BLANKS), min_size=30, max_size=200),
    num_chars=st.integers(1, 300),
    data=st.data(),
)
def test_a_part_is_a_part(
    words: list[tuple[str, str]], num_chars: int, data: st.DataObject
) -> None:
    text = "".join(w + b for w, b in words)
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    place = around(text, (start, end), num_chars=num_chars)
    assert text[place.offset : place.offset + len(place.text)] == place.text
    assert place.range == (start, end)
    assert place.offset <= start
    assert end <= place.offset + len(place.text)
    assert len(place.text) >= min(num_chars, len(text))
    cut = part(text, start, num_chars)
    assert text[cut.offset : cut.offset + len(cut.text)] == cut.text
    assert cut.offset <= start < cut.offset + len(cut.text)


def test_parts_one_after_the_other_leave_nothing_out() -> None:
    text = "".join(f"Paragraph {n} has a few words.\n\n" for n in range(400))
    joined, at = "", 0
    while at < len(text):
        found = part(text, at, 1000)
        assert found.offset == at, "a part ends where a block does, so the next begins there"
        assert found.text.startswith("Paragraph")
        joined += found.text
        at += len(found.text)
    assert joined == text


def test_code_is_not_cut_in_two() -> None:
    code = "```c\n" + "".join(f"int x{n};\n\n" for n in range(40)) + "```\n"
    text = "Words. " * 40 + "\n\n" + code + "\nMore words.\n\n" + "Words. " * 400
    begin = text.index("int x20;")
    place = around(text, (begin, begin + 8), num_chars=60)
    assert place.text.startswith("```c\n")
    assert place.text.rstrip().endswith("```")


def test_of_several_places_the_expected_one_is_taken() -> None:
    text = "".join(f"## {n}\n\nSee the handbook.\n\n" for n in range(10))
    places = [find(text, "See the  handbook.", near=n / 10) for n in range(10)]
    assert len(set(places)) >= 9
    assert places == sorted(p for p in places if p is not None)


def test_what_is_not_there_is_not_found() -> None:
    assert find("Some words about paging.", "Other words about nothing at all.") is None
    assert find("Some words.", "") is None
    assert find("", "words") is None
    assert find("Some words.", "—!") is None


def test_a_long_passage_is_found_by_its_ends() -> None:
    middle = " ".join(f"word{n}" for n in range(2000))
    text = f"Before.\n\n{middle}\n\nAfter."
    assert find(text, middle.replace(" ", "\n")) == (9, 9 + len(middle))


def test_every_passage_of_a_document_is_found() -> None:
    """Also those that repeat a lead-in or a table's head, and name the sections in them."""
    rows = "".join(f"| register {n} | holds value {n * 7} |\n" for n in range(120))
    items = "".join(f"{n}. Do step {n} with care and then look.\n" for n in range(1, 80))
    text = (
        "# Manual\n\nFirst words.\n\n## Table\n\nThe registers are these:\n\n"
        f"| Name | Use |\n|---|---|\n{rows}\n## Steps\n\nDo this in order:\n\n{items}\n"
        "## Short one\n\nA short section.\n\n## Short two\n\nAnother short section.\n"
    )
    passages = split(markdown_document(text, "manual.md"))
    assert len(passages) > 4
    for n, passage in enumerate(passages):
        found = find(text, passage.text, near=n / len(passages))
        assert found is not None, passage.text
        last = [line for line in passage.text.split("\n") if line.strip("` ")][-1]
        core = last.strip("*| ").split("|")[0].strip()
        assert core in text[found[0] : found[1]]
        assert found[1] - found[0] <= 2 * len(passage.text) + 200


@pytest.mark.parametrize(
    ("text", "passage"),
    [
        ("a " * 2_000_000, "a " * 399 + "b"),
        ("资料只是信息。" * 500_000, "资料只是信息是" * 50),
        ("x" * 4_000_000, "x" * 100 + " y"),
    ],
)
def test_a_search_ends(text: str, passage: str) -> None:
    begin_s = time.monotonic()
    assert find(text, passage) is None
    assert time.monotonic() - begin_s < 20


@pytest.mark.parametrize(
    "filler",
    ["word " * 20, "word " * 20 + "\n", "a\n\n", "- item\n", "1,2,3\n", "```\ncode\n", "字" * 50],
)
def test_a_part_of_a_large_text_is_no_larger_than_asked(filler: str) -> None:
    """Whatever it is made of, and be it one line or one block of code."""
    passage = "The zeppelin hangar opens on Saturdays."
    half = filler * (1_000_000 // len(filler))
    text = f"{half}\n{passage}\n{half}"
    found = find(text, passage, near=0.4)
    assert found is not None
    assert text[slice(*found)] == passage
    for place in (around(text, found, num_chars=24_000), part(text, found[0], 24_000)):
        assert 20_000 < len(place.text) < 24_000 + 4 * 2_000
        assert place.offset <= found[0]
        assert passage in place.text
