"""Word documents (docx): headings by style or outline level, lists, tables, notes.

What a reader sees is taken: insertions that are only proposed are, deletions are not. Text
boxes and foot- and endnotes, which stand beside the text, come at the end.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import PurePath

import docx
import docx.document
import regex
from docx.oxml.ns import qn
from docx.table import Table
from docx.text.paragraph import Paragraph
from lxml import etree

from server.app.materials.decoding import require_text
from server.app.materials.document import Block, Document, ParseLimits
from server.app.materials.errors import MaterialError
from server.app.materials.office_tables import pipe_table
from server.app.materials.parser import MaterialSource, Progress
from server.app.materials.part_maker import PartMaker
from server.app.materials.plain_document import document_text
from server.app.materials.zip_guard import check_office_file

BROKEN = (
    etree.LxmlError,
    zipfile.BadZipFile,
    KeyError,
    ValueError,
    AttributeError,
    IndexError,
    NotImplementedError,
)
"""What python-docx and python-pptx raise for files that are not what they should be."""
_HEADING_STYLE = regex.compile(r"(?:heading|标题|überschrift|titre)\s*(\d)", regex.IGNORECASE)
_TITLE_STYLE = regex.compile(r"title|标题|titel|titre", regex.IGNORECASE)
_LIST_STYLE = regex.compile(r"list\s+(bullet|number)\s*(\d?)", regex.IGNORECASE)
_CODE_STYLE = regex.compile(r"\b(code|source|preformatted|verbatim)\b", regex.IGNORECASE)
_MAX_LEVEL = 6
_NOTES = (("footnotes", "Footnotes"), ("endnotes", "Endnotes"))
_DROPPED = {qn("w:del"), qn("w:moveFrom"), qn("w:instrText"), qn("w:delText")}
_TEXT_BOX = qn("w:txbxContent")


class DocxParser:
    """python-docx reads the package; what it leaves out is taken from the markup."""

    format = "docx"

    def parse(self, source: MaterialSource, limits: ParseLimits, progress: Progress) -> Document:
        """The document in `source`. Raises MaterialError."""
        check_office_file(source.data, source.name, limits)
        try:
            document = docx.Document(io.BytesIO(source.data))
            maker = PartMaker()
            title = _body(document, maker)
            for heading, blocks in _asides(document):
                maker.heading(1, heading)
                for block in blocks:
                    maker.add(block)
            title = title or maker.first_heading or str(document.core_properties.title or "")
        except BROKEN as error:
            raise MaterialError("not_this_format", name=source.name) from error
        parts = maker.parts()
        text = document_text(parts)
        require_text(text, source.name, limits)
        return Document(title.strip() or PurePath(source.name).stem, parts, text, self.format)


def _body(document: docx.document.Document, maker: PartMaker) -> str:
    """Adds the body's paragraphs and tables; returns the title where a style says which it is."""
    title = ""
    numbers = _Numbering()
    for element in document.iter_inner_content():
        if isinstance(element, Table):
            maker.add(pipe_table(_rows(element)))
            continue
        text = paragraph_text(element._p).strip()
        if not text:
            continue
        style = (element.style.name or "") if element.style is not None else ""
        level = _heading_level(element, style)
        if level is None and not title and _TITLE_STYLE.fullmatch(style.strip()):
            title = " ".join(text.split())
            maker.heading(0, title)
        elif level is not None:
            maker.heading(level, " ".join(text.split()))
        elif (depth := _list_depth(element, style)) is not None:
            is_ordered = "number" in style.lower() or numbers.is_ordered(document, element)
            maker.item(text, depth, is_ordered=is_ordered)
        elif _CODE_STYLE.search(style):
            maker.code(text)
        else:
            maker.add(Block("paragraph", text))
    return title


def _heading_level(paragraph: Paragraph, style: str) -> int | None:
    """1 is the highest; None for what is no heading. A style may inherit it from another."""
    if match := _HEADING_STYLE.match(style):
        return min(max(int(match[1]), 1), _MAX_LEVEL)
    levels = paragraph._p.xpath("./w:pPr/w:outlineLvl/@w:val")
    current = paragraph.style
    for _ in range(_MAX_LEVEL):
        if levels or current is None:
            break
        levels = current.element.xpath("./w:pPr/w:outlineLvl/@w:val")
        if not levels and (match := _HEADING_STYLE.match(current.name or "")):
            return min(max(int(match[1]), 1), _MAX_LEVEL)
        current = getattr(current, "base_style", None)
    if levels and levels[0].isdigit() and int(levels[0]) < 9:
        return min(int(levels[0]) + 1, _MAX_LEVEL)
    return None


def _list_depth(paragraph: Paragraph, style: str) -> int | None:
    """How deep an item of a list is, from 0; None for what is no item."""
    numbering = paragraph._p.xpath("./w:pPr/w:numPr")
    if numbering:
        levels = numbering[0].xpath("./w:ilvl/@w:val")
        number = numbering[0].xpath("./w:numId/@w:val")
        if number and number[0] == "0":
            return None  # the style's numbering, taken away
        return int(levels[0]) if levels and levels[0].isdigit() else 0
    if match := _LIST_STYLE.match(style):
        return int(match[2]) - 1 if match[2] else 0
    return None


class _Numbering:
    """Which of a document's lists are counted, as its numbering part says."""

    def __init__(self) -> None:
        self._formats: dict[str, dict[str, str]] | None = None

    def is_ordered(self, document: docx.document.Document, paragraph: Paragraph) -> bool:
        number = paragraph._p.xpath("./w:pPr/w:numPr/w:numId/@w:val")
        level = paragraph._p.xpath("./w:pPr/w:numPr/w:ilvl/@w:val") or ["0"]
        if not number:
            return False
        if self._formats is None:
            self._formats = _list_formats(document)
        return self._formats.get(number[0], {}).get(level[0], "bullet") not in ("bullet", "none")


def _list_formats(document: docx.document.Document) -> dict[str, dict[str, str]]:
    """The number format of each level of each list, by the list's number."""
    related = (r for r in document.part.rels.values() if not r.is_external)
    numbering = next((r.target_part for r in related if r.reltype.endswith("/numbering")), None)
    if numbering is None:
        return {}
    root = _parse_xml(numbering.blob)
    names = {"w": root.nsmap.get("w") or qn("w:p")[1:].split("}")[0]}

    def values(node: etree._Element, path: str) -> list[str]:
        return [str(value) for value in node.xpath(path, namespaces=names)]

    abstract = {
        "".join(values(node, "./@w:abstractNumId")): {
            "".join(values(level, "./@w:ilvl")): "".join(values(level, "./w:numFmt/@w:val"))
            for level in node.xpath("./w:lvl", namespaces=names)
        }
        for node in root.xpath("./w:abstractNum", namespaces=names)
    }
    return {
        "".join(values(node, "./@w:numId")): abstract.get(
            "".join(values(node, "./w:abstractNumId/@w:val")), {}
        )
        for node in root.xpath("./w:num", namespaces=names)
    }


def _parse_xml(data: bytes) -> etree._Element:
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False)
    return etree.fromstring(data, parser)


def paragraph_text(node: etree._Element) -> str:
    """What is read in a paragraph, in order. Text boxes in it are not its text."""
    return "".join(_texts(node))


def _texts(node: etree._Element) -> Iterator[str]:
    stack = [iter(node)]
    while stack:
        child = next(stack[-1], None)
        if child is None:
            stack.pop()
            continue
        tag = child.tag
        if tag in _DROPPED or tag == _TEXT_BOX or not isinstance(tag, str):
            continue
        if tag == qn("w:t"):
            yield child.text or ""
        elif tag == qn("w:tab"):
            yield "\t" if child.getparent().tag == qn("w:r") else ""
        elif tag in (qn("w:br"), qn("w:cr")):
            yield "\n"
        elif tag == qn("w:noBreakHyphen"):
            yield "-"
        elif tag.endswith("}t") and "/math" in tag:
            yield child.text or ""
        elif not tag.endswith("}Fallback"):  # the same again, for older programs
            stack.append(iter(child))


def _rows(table: Table) -> list[list[str]]:
    """A merged cell's text once: where it begins."""
    rows = []
    seen: set[etree._Element] = set()
    for row in table.rows:
        cells = []
        for cell in row.cells:
            paragraphs = (paragraph_text(p) for p in cell._tc.iter(qn("w:p")))
            cells.append("" if cell._tc in seen else " ".join(t for t in paragraphs if t.strip()))
            seen.add(cell._tc)
        rows.append(cells)
    return rows


def _asides(document: docx.document.Document) -> Iterator[tuple[str, list[Block]]]:
    body = document.element.body
    # A box may be there twice, the second time for older programs.
    boxes = [
        box
        for box in body.iter(_TEXT_BOX)
        if not any(node.tag.endswith("}Fallback") for node in box.iterancestors())
    ]
    texts = [paragraph_text(p).strip() for box in boxes for p in box.iter(qn("w:p"))]
    if any(texts):
        yield "Text boxes", [Block("paragraph", text) for text in texts if text]
    for kind, heading in _NOTES:
        related = (r for r in document.part.rels.values() if not r.is_external)
        part = next((r.target_part for r in related if r.reltype.endswith(f"/{kind}")), None)
        if part is None:
            continue
        notes = [paragraph_text(p).strip() for p in _parse_xml(part.blob).iter(qn("w:p"))]
        if any(notes):
            yield heading, [Block("paragraph", note) for note in notes if note]
