"""PDFs: text in reading order under its headings, every block on the right page."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from server.app.materials.document import Document, ParseLimits, PassageLimits, Place
from server.app.materials.errors import MaterialError
from server.app.materials.parser import MaterialSource, no_progress
from server.app.materials.pdf import PdfParser
from server.app.passages import split
from tests.server.app.materials.made_files import (
    Bookmark,
    Text,
    many_pages_pdf,
    paragraph_lines,
    pdf,
)

FULL = "A line that is as long as all the others are on this page, more or less"


def parse(data: bytes, limits: ParseLimits | None = None) -> Document:
    return PdfParser().parse(
        MaterialSource("notes.pdf", data), limits or ParseLimits(), no_progress
    )


def prose(*lines: str, y: float = 700, x: float = 72, size: float = 11) -> list[Text]:
    return paragraph_lines(lines, y=y, x=x, size=size)


def blocks(document: Document) -> list[str]:
    return [block.whole for part in document.parts for block in part.blocks]


def five_pages() -> bytes:
    """A manual: a title, chapters 1 to 4 from page 2 on, one a page; heads, feet, an outline."""
    pages: list[Sequence[Text]] = [[(24, 72, 600, "The Kestrel Manual"), (11, 72, 500, "by Ada")]]
    for n in range(1, 5):
        head = [(9.0, 72.0, 800.0, f"Chapter {n}: Parts {n + 1}"), (9.0, 290.0, 30.0, f"{n + 1}")]
        body = prose(f"This is about part number {n}, and", FULL, "and it ends.", y=700 - n)
        pages.append([*head, (16, 72, 730, f"{n} Part {n}"), *body])
    marks = [Bookmark(f"Part {n}", n + 1) for n in range(1, 5)]
    return pdf(pages, outline=marks)


def test_chapters_stand_on_the_pages_where_they_are_printed() -> None:
    document = parse(five_pages())
    assert document.title == "The Kestrel Manual"
    assert document.num_pages == 5
    assert [(part.headings, part.place) for part in document.parts if part.headings] == [
        ((f"{n} Part {n}",), Place(page=n + 1)) for n in range(1, 5)
    ]
    found = {p.text: p.locator for p in split(document, PassageLimits(0, 400))}
    for n in range(1, 5):
        text = f"This is about part number {n}, and {FULL} and it ends."
        assert found[text] == f"p. {n + 1} › {n} Part {n}"


def test_heads_feet_and_page_numbers_are_left_out() -> None:
    assert "Parts" not in parse(five_pages()).text


def test_a_paragraph_runs_on_over_the_border_of_a_page() -> None:
    first, second = prose(FULL, FULL, y=100), prose("and goes on overleaf.", y=780)
    document = parse(pdf([[*prose("One.", y=400), *first], [*second, *prose("Two.", y=600)]]))
    (part,) = document.parts
    assert [(block.text, block.place.fields()) for block in part.blocks] == [
        ("One.", {"page": 1}),
        (f"{FULL} {FULL} and goes on overleaf.", {"page": 1, "to_page": 2}),
        ("Two.", {"page": 2}),
    ]


def test_a_gap_an_indent_and_a_short_last_line_end_a_paragraph() -> None:
    lines = [
        *prose(FULL, "is one.", y=700),
        *prose(FULL, "is two.", y=674),  # the same distance: only the short line parts them
        *prose(FULL, "is three", y=620),
        (11.0, 90.0, 594.0, FULL + " four"),
        *prose("goes on.", y=581),
    ]
    assert blocks(parse(pdf([lines]))) == [
        f"{FULL} is one.",
        f"{FULL} is two.",
        f"{FULL} is three",
        f"{FULL} four goes on.",
    ]


def test_code_keeps_its_lines_and_its_indentation() -> None:
    code: list[Text] = [
        (-10, 90, 660, "def f(x):"),
        (-10, 114, 648, "return x + 1"),
        (-10, 90, 624, "print(f(1))"),
        (-10, 90, 612, "print(f(2))"),
    ]
    document = parse(pdf([[*prose("An example:", y=680), *code]]))
    assert blocks(document) == [
        "An example:\n\n```\ndef f(x):\n    return x + 1\n\nprint(f(1))\nprint(f(2))\n```"
    ]


def test_items_make_a_list_and_deeper_ones_stand_further_in() -> None:
    lines: list[Text] = [
        *prose("Bring these:", y=700),
        (11, 80, 680, "- a pen,"),
        (11, 88, 667, "blue or black"),
        (11, 80, 654, "- paper"),
        (11, 100, 641, "- ruled"),
        (11, 80, 628, "- a watch"),
    ]
    assert blocks(parse(pdf([lines]))) == [
        "Bring these:\n\n- a pen, blue or black\n- paper\n  - ruled\n- a watch"
    ]


def test_a_row_of_a_table_is_a_line() -> None:
    rows: list[Text] = []
    for i, row in enumerate((("Part", "Weight"), ("Labs", "40 %"), ("Exam", "60 %"))):
        rows += [(11, 72 + 200 * j, 600 - 14 * i, cell) for j, cell in enumerate(row)]
    assert blocks(parse(pdf([[*prose("Grading:", y=640), *rows]]))) == [
        "Grading:\n\nPart | Weight\nLabs | 40 %\nExam | 60 %"
    ]


def test_without_an_outline_larger_lines_are_headings() -> None:
    def section(y: float, name: str) -> list[Text]:
        return [(16, 72, y, name), *prose(FULL, "ends.", y=y - 30)]

    pages = [
        [(24, 72, 780, "Course notes"), *section(740, "Week 1"), *section(600, "Week 2")],
        [(13, 72, 760, "Reading"), *prose(FULL, "ends.", y=730)],
    ]
    document = parse(pdf(pages))
    assert document.title == "Course notes"
    found = [part.headings for part in document.parts]
    assert found == [
        ("Course notes",),
        ("Course notes", "Week 1"),
        ("Course notes", "Week 2"),
        ("Course notes", "Week 2", "Reading"),
    ]


def test_the_outline_gives_levels_and_the_page_gives_the_words() -> None:
    pages = [
        [(16, 72, 760, "2 Caches"), *prose("Intro.", y=730), (13, 72, 600, "2.1 Paged caches")],
        [*prose("Blocks.", y=760)],
    ]
    marks = [Bookmark("Caches", 1), Bookmark("Paged caches", 1, level=1)]
    document = parse(pdf(pages, outline=marks))
    assert [(p.headings, [b.text for b in p.blocks]) for p in document.parts] == [
        (("2 Caches",), ["Intro."]),
        (("2 Caches", "2.1 Paged caches"), ["Blocks."]),
    ]


def test_a_number_above_a_heading_is_not_part_of_it() -> None:
    lines: list[Text] = [*prose("The answer is", "42", y=760), (16, 72, 700, "4.8 Proofs")]
    marks = [Bookmark("Proofs", 1), Bookmark("Nothing", 1)]
    document = parse(pdf([[*lines, *prose("A box.", y=600)]], outline=marks))
    assert document.parts[1].headings == ("4.8 Proofs",)
    assert document.parts[0].blocks[0].text == "The answer is 42"


def test_lines_of_a_table_of_contents_are_left_out() -> None:
    contents = [f"{n} Chapter . . . . . . . . . . . {n}" for n in range(1, 6)]
    pages = [prose("Contents", *contents), prose("A chapter begins."), prose(FULL)]
    assert blocks(parse(pdf(pages))) == ["Contents", "A chapter begins.", FULL]


def test_wide_pages_are_slides_and_uncovered_ones_count_once() -> None:
    def slide(title: str, *points: str) -> list[Text]:
        return [
            (20, 30, 230, title),
            *((11.0, 40.0, 180.0 - 20 * i, f"- {point}") for i, point in enumerate(points)),
        ]

    pages = [
        slide("Scheduling"),
        slide("Scheduling", "first come"),
        slide("Scheduling", "first come", "first served"),
        slide("Preemption", "least work"),
    ]
    document = parse(pdf(pages, size=(400, 260)))
    assert [(part.headings, part.place.page) for part in document.parts] == [
        (("Scheduling",), 3),
        (("Preemption",), 4),
    ]
    assert blocks(document) == ["- first come\n- first served", "- least work"]


def test_a_large_line_on_every_slide_is_no_title() -> None:
    names = ("Sets", "Maps", "Words", "Graphs", "Trees", "Proofs")
    pages: list[list[Text]] = [
        [(22, 300, 240, "LOGIC"), (18, 30, 220, name), (11, 40, 150, f"All about {name.lower()}.")]
        for name in names
    ]
    document = parse(pdf(pages, size=(400, 260)))
    assert [part.headings for part in document.parts] == [(name,) for name in names]
    assert "LOGIC" not in document.text


def test_items_of_a_slide_may_be_counted_without_a_full_stop() -> None:
    lines: list[Text] = [
        (20, 30, 230, "Plan"),
        (11, 40, 180, "1 Partition the sites into blocks and combine"),
        (11, 55, 163, "them."),
        (11, 40, 140, "2 Compute"),
    ]
    assert blocks(parse(pdf([lines], size=(400, 260)))) == [
        "1. Partition the sites into blocks and combine them.\n2. Compute"
    ]


@pytest.mark.parametrize(
    ("title", "expected"), [("Notes on Caches", "Notes on Caches"), ("Microsoft Word - x", "notes")]
)
def test_the_title_of_the_file_is_taken_unless_a_program_wrote_it(
    title: str, expected: str
) -> None:
    assert parse(pdf([prose(FULL, "ends.")] * 2, title=title)).title == expected


def test_pages_without_text_are_a_warning() -> None:
    assert parse(pdf([prose(FULL), [], []])).warnings == ("little_text",)
    assert parse(pdf([prose(FULL), []])).warnings == ()


@pytest.mark.parametrize(
    ("limits", "code"),
    [(ParseLimits(max_pages=9), "too_many_pages"), (ParseLimits(max_chars=20), "too_big")],
)
def test_too_many_pages_and_too_much_text_are_refused(limits: ParseLimits, code: str) -> None:
    with pytest.raises(MaterialError) as refused:
        parse(many_pages_pdf(10), limits)
    assert refused.value.code == code


def test_progress_is_told_in_pages() -> None:
    seen: list[tuple[int, int]] = []
    source = MaterialSource("a.pdf", pdf([prose("x y z")] * 25))
    PdfParser().parse(source, ParseLimits(), lambda done, total: seen.append((done, total)))
    assert seen == [(10, 25), (20, 25), (25, 25)]
