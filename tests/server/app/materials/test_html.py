"""HTML: the main text with its structure, and nothing of what surrounds it."""

from __future__ import annotations

import pytest

from server.app.materials.document import Document, ParseLimits
from server.app.materials.errors import MaterialError
from server.app.materials.html import HtmlParser
from server.app.materials.parser import MaterialSource, no_progress
from tests.server.app.materials.made_files import LAUGHS


def parse(page: str | bytes, name: str = "notes.html") -> Document:
    data = page.encode() if isinstance(page, str) else page
    return HtmlParser().parse(MaterialSource(name, data), ParseLimits(), no_progress)


def blocks(body: str) -> list[str]:
    document = parse(f"<html><body>{body}</body></html>")
    return [block.whole for part in document.parts for block in part.blocks]


@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("<title>Site: Lab</title><h1>Lab <em>3</em></h1><p>x", "Lab 3"),
        ("<title>Lab\n 3</title><p>x", "Lab 3"),
        ("<p>x", "notes"),
    ],
)
def test_the_title(page: str, title: str) -> None:
    assert parse(page).title == title


def test_headings_make_parts() -> None:
    document = parse("<h1>A</h1><p>a</p><section><h2>B</h2>b</section><h2>C</h2><p>c</p>")
    assert [(p.headings, [b.text for b in p.blocks]) for p in document.parts] == [
        (("A",), ["a"]),
        (("A", "B"), ["b"]),
        (("A", "C"), ["c"]),
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("one<br>two <b>three</b>", ["one two three"]),
        ("loose <p>inner</p> after", ["loose", "inner", "after"]),
        ("<span>a<div>b</div>c</span>", ["a", "b", "c"]),
        (
            "<p>Do:</p><ul><li>a<ul><li>b</li></ul>c</li><li>d</li></ul>",
            ["Do:\n\n- a c\n  - b\n- d"],
        ),
        ("<ol><li><p>a</p><p>b</p></li><li>c</li></ol>", ["1. a b\n2. c"]),
        ("<ul><div><li>stray</li></div></ul>", ["- stray"]),
        (
            "<pre>\nif x:\n\ty()\n</pre><pre>z</pre>",
            ["```\nif x:\n        y()\n```", "```\nz\n```"],
        ),
        ("<dl><dt>KV</dt><dd>key and value</dd></dl>", ["- **KV**: key and value"]),
        ("<dl><dt>KV</dt><dd><p>a</p><p>b</p></dd></dl>", ["**KV**", "a", "b"]),
        ("<dl><dt>alone</dt></dl>", ["**alone**"]),
        (
            "<table><caption>T</caption><tr><th>a<th>b<tr><td>1<td>2|3</table>",
            ["T\n\n| a | b |\n| --- | --- |\n| 1 | 2\\|3 |"],
        ),
        ("<table><tr><td><h2>x</h2><p>y</p></table>", ["y"]),
        ('<p>see <img alt="the plan"></p>', ["see the plan"]),
        ("<blockquote><p>said</p></blockquote>", ["said"]),
    ],
)
def test_elements_become_blocks(body: str, expected: list[str]) -> None:
    assert blocks(body) == expected


@pytest.mark.parametrize(
    "noise",
    [
        "<script>noise</script>",
        "<style>noise</style>",
        "<nav>noise</nav>",
        '<div role="navigation">noise</div>',
        '<div class="sphinxsidebar x">noise</div>',
        "<p hidden>noise</p>",
        '<p style="display: none">noise</p>',
        '<span aria-hidden="true">noise</span>',
        "<!-- noise -->",
        "<template>noise</template>",
        "<select><option>noise</select>",
    ],
)
def test_what_nobody_reads_is_left_out(noise: str) -> None:
    assert " ".join(blocks(f"before {noise} after")) == "before after"


def test_the_main_element_is_all_that_is_read() -> None:
    page = "<header>site</header><main><p>text</p></main><aside>adverts</aside>"
    assert parse(page).text == "text"


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ('<meta charset="gb2312">', "gb18030"),
        ("<meta http-equiv=Content-Type content='text/html; charset=GBK'>", "gb18030"),
        ('<meta charset="big5">', "big5"),
        ('<?xml version="1.0" encoding="utf-8"?>', "utf-8"),
        ('<meta charset="us-ascii">', "utf-8"),
    ],
)
def test_the_declared_encoding_is_used_unless_it_is_wrong(head: str, encoding: str) -> None:
    text = "缓存块表" if encoding != "big5" else "快取區塊"
    page = f"<html><head>{head}</head><body><p>{text}</p></body></html>"
    assert parse(page.encode(encoding)).text == text


def test_depth_and_entities_do_no_harm() -> None:
    deep = parse("<p>first</p>" + "<div>" * 100_000 + "deep")
    assert deep.text.startswith("first")
    assert len(parse(LAUGHS + "<html><body><p>&i;</p></body></html>").text) < 100


def test_control_characters_are_blanks() -> None:
    assert parse("<p>a\x01b<script>x</script>c\x0cd &#1; &#xfffe; e</p>").text == "a bc d e"


def test_a_page_without_text_is_refused() -> None:
    for page in (b"", b"<html></html>", b"<img src=x>"):
        with pytest.raises(MaterialError) as refused:
            parse(page)
        assert refused.value.code == "no_text"
