"""Any words, written by the usual programs, come back: in any format, and through passages."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable

import docx
import pptx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.app.materials.document import Document, ParseLimits, PassageLimits
from server.app.materials.parser import MaterialSource, no_progress, parser_for
from server.app.passages import split
from tests.server.app.materials.made_files import docx_file, paragraph_lines, pdf, pptx_file

_WORDS = st.text(
    st.characters(
        codec="utf-8", categories=("Lu", "Ll", "Lo", "Nd"), exclude_characters="\u3164\uffa0"
    ),
    min_size=1,
    max_size=12,
)
_PARAGRAPHS = st.lists(st.lists(_WORDS, min_size=1, max_size=12), min_size=1, max_size=8)
_LATIN = st.text("abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=9)


def parse(name: str, data: bytes) -> Document:
    return parser_for(name, data[:1024]).parse(
        MaterialSource(name, data), ParseLimits(), no_progress
    )


def words_of(document: Document, most: int) -> list[str]:
    passages = split(document, PassageLimits(most // 3, most))
    return " ".join(passage.text for passage in passages).split()


def as_docx(paragraphs: list[str]) -> tuple[str, bytes]:
    document = docx.Document()
    for i, paragraph in enumerate(paragraphs):
        document.add_paragraph(paragraph, style="List Bullet" if i % 3 == 2 else None)
    return "a.docx", docx_file(document)


def as_pptx(paragraphs: list[str]) -> tuple[str, bytes]:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    frame = slide.placeholders[1].text_frame
    frame.text = paragraphs[0]
    for paragraph in paragraphs[1:]:
        frame.add_paragraph().text = paragraph
    return "a.pptx", pptx_file(presentation)


def as_html(paragraphs: list[str]) -> tuple[str, bytes]:
    body = "".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in paragraphs)
    return "a.html", f"<html><meta charset=utf-8><body>{body}</body></html>".encode()


def as_csv(paragraphs: list[str]) -> tuple[str, bytes]:
    buffer = io.StringIO()
    csv.writer(buffer).writerows([paragraph, "x"] for paragraph in paragraphs)
    return "a.csv", buffer.getvalue().encode()


def as_text(paragraphs: list[str]) -> tuple[str, bytes]:
    return "a.txt", "\n\n".join(paragraphs).encode()


@pytest.mark.parametrize("write", [as_docx, as_pptx, as_html, as_csv, as_text])
@given(paragraphs=_PARAGRAPHS, most=st.integers(40, 400))
@settings(max_examples=15)
def test_no_word_is_lost_or_moved(
    write: Callable[[list[str]], tuple[str, bytes]], paragraphs: list[list[str]], most: int
) -> None:
    name, data = write([" ".join(words) for words in paragraphs])
    kept = "".join(words_of(parse(name, data), most))
    begin = 0
    for word in (word for paragraph in paragraphs for word in paragraph):
        # A word longer than a passage may lie in two: blanks do not count.
        place = kept.find("".join(word.split()), begin)
        assert place >= 0, word
        begin = place


@given(st.lists(st.lists(_LATIN, min_size=3, max_size=9), min_size=1, max_size=30))
@settings(max_examples=25)
def test_the_words_of_a_pdf_come_back_in_their_order(lines: list[list[str]]) -> None:
    written = [" ".join(line) for line in lines]
    document = parse("a.pdf", pdf([paragraph_lines(written)]))
    kept = words_of(document, 400)
    assert [word for word in kept if word.isalpha()] == [w for line in lines for w in line]
