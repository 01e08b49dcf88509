"""Presentations: one part a slide, under its title, with tables and notes."""

from __future__ import annotations

import pptx
import pytest
from pptx.util import Inches

from server.app.materials.document import Document, ParseLimits, PassageLimits, Place
from server.app.materials.errors import MaterialError
from server.app.materials.parser import MaterialSource, no_progress
from server.app.materials.pptx import PptxParser
from server.app.passages import split
from tests.server.app.materials.made_files import pptx_file

TITLE_AND_BODY, ONLY_TITLE = 1, 5


def presentation(*slides: tuple[str, list[tuple[int, str]]]) -> pptx.presentation.Presentation:
    made = pptx.Presentation()
    for title, points in slides:
        slide = made.slides.add_slide(made.slide_layouts[TITLE_AND_BODY])
        slide.shapes.title.text = title
        frame = slide.placeholders[1].text_frame
        for i, (level, text) in enumerate(points):
            paragraph = frame.paragraphs[0] if i == 0 else frame.add_paragraph()
            paragraph.text, paragraph.level = text, level
    return made


def parse(made: pptx.presentation.Presentation, limits: ParseLimits | None = None) -> Document:
    source = MaterialSource("week1.pptx", pptx_file(made))
    return PptxParser().parse(source, limits or ParseLimits(), no_progress)


def test_slides_are_parts_with_their_points_by_level() -> None:
    document = parse(
        presentation(
            ("Inference Engines", [(0, "A single point.")]),
            ("Scheduling", [(0, "budget"), (1, "per step"), (0, "fairness")]),
        )
    )
    assert document.title == "Inference Engines"
    assert document.num_pages == 2
    passages = split(document, PassageLimits(0, 100))
    assert [(p.locator, p.text) for p in passages] == [
        ("slide 1", "A single point."),
        ("slide 2 › Scheduling", "- budget\n  - per step\n- fairness"),
    ]


def test_short_slides_share_a_passage_that_says_from_where_to_where() -> None:
    slides = [(f"Topic {n}", [(0, f"Point {n}.")]) for n in range(1, 4)]
    (passage,) = split(parse(presentation(("Week 1", [(0, "Welcome.")]), *slides)))
    assert passage.place == Place(slide=1, to_slide=4)
    assert "**Topic 2**\n\nPoint 2." in passage.text


def test_tables_text_boxes_groups_and_notes() -> None:
    made = presentation(("Grading", [(0, "Two parts.")]))
    slide = made.slides[0]
    table = slide.shapes.add_table(2, 2, 0, 0, Inches(4), Inches(1)).table
    for i, text in enumerate(("Part", "Weight", "Labs", "40 %")):
        table.cell(i // 2, i % 2).text = text
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = "In a group"
    slide.notes_slide.notes_text_frame.text = "Mention the bonus."
    (part,) = parse(made).parts
    assert [block.whole for block in part.blocks] == [
        "Two parts.\n\n| Part | Weight |\n| --- | --- |\n| Labs | 40 % |",
        "In a group",
        "Notes: Mention the bonus.",
    ]


def test_a_hidden_slide_is_left_out_and_the_others_keep_their_numbers() -> None:
    made = presentation(("One", [(0, "a")]), ("Answers", [(0, "42")]), ("Three", [(0, "c")]))
    made.slides[1].element.set("show", "0")
    document = parse(made)
    assert "42" not in document.text
    assert [part.place.slide for part in document.parts] == [1, 3]


def test_slides_without_titles_have_no_heading() -> None:
    made = presentation(("", [(0, "Only text.")]))
    document = parse(made)
    assert document.title == "week1"
    assert document.parts[0].headings == ()


def test_too_many_slides_are_refused() -> None:
    with pytest.raises(MaterialError) as refused:
        parse(presentation(*[("x", [(0, "y")])] * 3), ParseLimits(max_pages=2))
    assert refused.value.code == "too_many_pages"
