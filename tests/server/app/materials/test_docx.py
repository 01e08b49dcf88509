"""Word documents: what a reader sees, in its order, with its structure."""

from __future__ import annotations

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.shared import Pt

from server.app.materials.document import Document, ParseLimits
from server.app.materials.docx import DocxParser
from server.app.materials.errors import MaterialError
from server.app.materials.parser import MaterialSource, no_progress
from tests.server.app.materials.made_files import (
    docx_file,
    with_members,
    word_paragraph,
    word_xml,
)

MAIN = "word/document.xml"


def parse(data: bytes) -> Document:
    return DocxParser().parse(MaterialSource("lab.docx", data), ParseLimits(), no_progress)


def parse_body(xml: str, *, dtd: str = "") -> Document:
    return parse(with_members(docx_file(), {MAIN: word_xml(xml, dtd=dtd)}))


def test_headings_lists_tables_and_code() -> None:
    document = docx.Document()
    document.add_heading("Lab 3", 0)
    document.add_paragraph("Read this first.")
    document.add_heading("Tasks", 1)
    document.add_paragraph("Do these:")
    document.add_paragraph("one", style="List Number")
    document.add_paragraph("two", style="List Number")
    document.add_paragraph("deeper", style="List Number 2")
    document.add_heading("Grading", 2)
    table = document.add_table(2, 2)
    for cell, text in zip(table._cells, ("Part", "Points", "Code", "6 | 7"), strict=True):
        cell.text = text
    found = parse(docx_file(document))
    assert found.title == "Lab 3"
    assert [(p.headings, [b.whole for b in p.blocks]) for p in found.parts] == [
        (("Lab 3",), ["Read this first."]),
        (("Lab 3", "Tasks"), ["Do these:\n\n1. one\n2. two\n  1. deeper"]),
        (
            ("Lab 3", "Tasks", "Grading"),
            ["| Part | Points |\n| --- | --- |\n| Code | 6 \\| 7 |"],
        ),
    ]
    assert "# Lab 3\n\nRead this first.\n\n## Tasks" in found.text


def test_a_style_that_is_based_on_a_heading_is_one() -> None:
    document = docx.Document()
    style = document.styles.add_style("Chapter", WD_STYLE_TYPE.PARAGRAPH)
    style.base_style = document.styles["Heading 2"]
    style.font.size = Pt(20)
    document.add_paragraph("Caches", style="Chapter")
    document.add_paragraph("Text.")
    assert [part.headings for part in parse(docx_file(document)).parts] == [("Caches",)]


def test_an_outline_level_makes_a_heading() -> None:
    heading = '<w:p><w:pPr><w:outlineLvl w:val="0"/></w:pPr><w:r><w:t>第一章 缓存</w:t></w:r></w:p>'
    document = parse_body(heading + word_paragraph("正文。"))
    assert document.title == "第一章 缓存"
    assert document.parts[0].blocks[0].text == "正文。"


def test_a_merged_cell_is_told_once() -> None:
    document = docx.Document()
    table = document.add_table(2, 3)
    table.cell(0, 0).merge(table.cell(0, 1)).text = "wide"
    table.cell(1, 0).text, table.cell(1, 1).text, table.cell(1, 2).text = "a", "b", "c"
    (part,) = parse(docx_file(document)).parts
    assert part.blocks[0].whole == "| wide |  |  |\n| --- | --- | --- |\n| a | b | c |"


def test_deletions_are_dropped_and_insertions_kept() -> None:
    change = (
        '<w:p><w:r><w:t>Due on </w:t></w:r><w:del w:id="1" w:author="x"><w:r><w:delText>Monday'
        '</w:delText></w:r></w:del><w:ins w:id="2" w:author="x">'
        "<w:r><w:t>Friday</w:t></w:r></w:ins></w:p>"
    )
    assert parse_body(change).text == "Due on Friday"


def test_breaks_links_and_fields_read_as_they_are_shown() -> None:
    paragraph = (
        "<w:p><w:r><w:t>a</w:t><w:br/><w:t>b</w:t><w:tab/><w:t>c</w:t></w:r>"
        "<w:hyperlink><w:r><w:t> link</w:t></w:r></w:hyperlink>"
        "<w:r><w:instrText>PAGE</w:instrText></w:r></w:p>"
    )
    assert parse_body(paragraph).text == "a\nb\tc link"


def test_text_boxes_and_footnotes_come_at_the_end() -> None:
    box = (
        "<w:p><w:r><w:t>Body.</w:t></w:r><w:r><w:pict><w:txbxContent>"
        f"{word_paragraph('In a box.')}</w:txbxContent></w:pict></w:r></w:p>"
    )
    names = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    notes = f'<w:footnotes {names}><w:footnote w:id="1">{word_paragraph("A note.")}</w:footnote>'
    data = docx_file()
    relations = with_footnotes(data)
    found = parse(
        with_members(
            data,
            {
                MAIN: word_xml(box),
                "word/footnotes.xml": f"{notes}</w:footnotes>".encode(),
                **relations,
            },
        )
    )
    assert found.text == "Body.\n\n# Text boxes\n\nIn a box.\n\n# Footnotes\n\nA note."


def with_footnotes(data: bytes) -> dict[str, bytes]:
    """The package's lists of relations and of types, with a footnotes part."""
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        relations = archive.read("word/_rels/document.xml.rels").decode()
        types = archive.read("[Content_Types].xml").decode()
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
    relation = f'<Relationship Id="rId99" Type="{kind}" Target="footnotes.xml"/>'
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
    override = f'<Override PartName="/word/footnotes.xml" ContentType="{main}"/>'
    return {
        "word/_rels/document.xml.rels": relations.replace(
            "</Relationships>", f"{relation}</Relationships>"
        ).encode(),
        "[Content_Types].xml": types.replace("</Types>", f"{override}</Types>").encode(),
    }


def test_nothing_outside_the_file_is_read() -> None:
    dtd = '<!DOCTYPE w [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
    with open("/etc/hostname") as file:
        secret = file.read().strip()
    try:
        text = parse_body(word_paragraph("Host: &x;."), dtd=dtd).text
    except MaterialError:
        return
    assert secret not in text


@pytest.mark.parametrize("data", [b"PK\x03\x04", docx_file()[:-50]])
def test_a_broken_file_is_told(data: bytes) -> None:
    with pytest.raises(MaterialError) as refused:
        parse(data)
    assert refused.value.code == "not_this_format"
