"""Markdown for paper: marks fall on words and never break what they stand in."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.app.paper_markdown import PaperMarkdown

PAPER = PaperMarkdown()
TAGS = {
    *("p", "h4", "h5", "h6", "em", "strong", "code", "pre", "ul", "ol", "li", "blockquote"),
    *("table", "thead", "tbody", "tr", "th", "td", "hr", "br", "mark"),
}


class Reader(HTMLParser):
    """The text, what of it is marked, and whether each element is closed where it must be."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.marked: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        if tag not in ("hr", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "mark" in self._open:
            self.marked.append(data)


TABLE = "Weights:\n\n| Part | Share |\n| --- | ---: |\n| Exam | 30% |\n| Labs | 70% |\n"


@pytest.mark.parametrize(
    ("text", "wanted", "marked"),
    [
        ("One. Two is **bold** here. Three.", "Two is **bold** here.", "Two is bold here."),
        ("**Bold** begins. More.", "**Bold** begins.", "Bold begins."),
        ("First.\n\n- an `item` of it\n- other", "- an `item` of it", "an item of it"),
        ("# Late work\n\nText.", "# Late work", "Late work"),
        ("Above ends.\n\nBelow begins.", "ends.\n\nBelow", "ends.Below"),
        (TABLE, "| Labs | 70% |", "Labs70%"),
        ("```\na = 1\nb = 2\n```", "b = 2", "b = 2"),
        ("> Said “so”. Then.", "> Said “so”.", "Said “so”."),
    ],
)
def test_a_mark_falls_on_the_words(text: str, wanted: str, marked: str) -> None:
    start = text.index(wanted)
    shown = Reader(str(PAPER.render(text, [[start, start + len(wanted)]])))
    assert "".join(shown.marked) == marked
    plain = Reader(str(PAPER.render(text)))
    assert (shown.text, plain.marked) == (plain.text, [])


def test_a_table_keeps_its_shape_whatever_of_it_is_marked() -> None:
    for start in range(len(TABLE)):
        for end in range(start + 1, len(TABLE) + 1, 3):
            html = str(PAPER.render(TABLE, [[start, end]]))
            assert re.sub("</?mark>", "", html) == str(PAPER.render(TABLE)), (start, end)


@given(
    st.text(alphabet="ab *|#-1.>\n`中[]()!<&\u2e24", max_size=40),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=4),
)
def test_whatever_is_marked_the_page_stays_whole(text: str, marks: list[tuple[int, int]]) -> None:
    html = str(PAPER.render(text, [[a, b] for a, b in marks if a < b]))
    letters = Reader(html).text
    assert [c for c in letters if c in "ab中"] == [c for c in text if c in "ab中"]
    assert "\u2e24" not in html
    assert "\u2e25" not in html


def test_an_address_stands_once_behind_its_words() -> None:
    text = (
        "[the plan](https://example.org/plan) ![map](http://example.org/m.png) <http://a.example>"
    )
    html = str(PAPER.render(text))
    assert html == (
        "<p>the plan (https://example.org/plan) map (http://example.org/m.png) "
        "http://a.example</p>\n"
    )


def test_lines_are_kept_where_they_are_wanted() -> None:
    assert "<br" in str(PaperMarkdown(keeps_lines=True).render("one\ntwo"))
    assert "<br" not in str(PAPER.render("one\ntwo"))


@pytest.mark.timeout(20)
def test_many_links_are_put_on_paper() -> None:
    html = PAPER.render("[a](https://b.example/) " * 10_000)
    assert html.count("https://b.example/") == 10_000
