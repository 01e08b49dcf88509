"""PowerPoint presentations (pptx): one part a slide, with its tables and notes.

Slides that are hidden in the presentation are left out: nobody was meant to see them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import pptx
import regex
from pptx.enum.shapes import PP_PLACEHOLDER

from server.app.materials.decoding import require_text
from server.app.materials.document import Block, Document, ParseLimits, Place
from server.app.materials.docx import BROKEN
from server.app.materials.errors import MaterialError
from server.app.materials.office_tables import pipe_table
from server.app.materials.parser import MaterialSource, Progress
from server.app.materials.part_maker import PartMaker
from server.app.materials.plain_document import document_text
from server.app.materials.zip_guard import check_office_file

_TITLES = (PP_PLACEHOLDER.TITLE, PP_PLACEHOLDER.CENTER_TITLE)
_FURNITURE = (PP_PLACEHOLDER.FOOTER, PP_PLACEHOLDER.SLIDE_NUMBER, PP_PLACEHOLDER.DATE)
_NO_TITLE = regex.compile(r"(powerpoint )?presentation$|powerpoint|slide \d|演示文稿", regex.I)
_MAX_GROUPS = 16


class PptxParser:
    """python-pptx reads the package."""

    format = "pptx"

    def parse(self, source: MaterialSource, limits: ParseLimits, progress: Progress) -> Document:
        """The document in `source`. Raises MaterialError."""
        check_office_file(source.data, source.name, limits)
        try:
            presentation = pptx.Presentation(io.BytesIO(source.data))
            num_slides = len(presentation.slides)
            if num_slides > limits.max_pages:
                raise MaterialError(
                    "too_many_pages", name=source.name, pages=num_slides, most=limits.max_pages
                )
            maker = PartMaker()
            for number, slide in enumerate(presentation.slides, start=1):
                if slide.element.get("show") != "0":
                    _add_slide(maker, slide, Place(slide=number))
                progress(number, num_slides)
            claimed = str(presentation.core_properties.title or "")
            title = maker.first_heading or ("" if _NO_TITLE.match(claimed) else claimed)
        except BROKEN as error:
            raise MaterialError("not_this_format", name=source.name) from error
        parts = maker.parts()
        text = document_text(parts)
        require_text(text, source.name, limits)
        title = title.strip() or PurePath(source.name).stem
        return Document(title, parts, text, self.format, num_pages=num_slides)


def _add_slide(maker: PartMaker, slide: Any, place: Place) -> None:
    title = " ".join(slide.shapes.title.text.split()) if slide.shapes.title is not None else ""
    maker.heading(1, title, place)
    for shape in _shapes(slide.shapes, 0):
        if shape.has_text_frame:
            _add_text(maker, shape, place)
        elif getattr(shape, "has_table", False) and shape.has_table:
            rows = [
                ["" if cell.is_spanned else cell.text_frame.text for cell in row.cells]
                for row in shape.table.rows
            ]
            maker.add(pipe_table(rows, place))
        elif getattr(shape, "has_chart", False) and shape.has_chart:
            chart = shape.chart
            if chart.has_title and chart.chart_title.has_text_frame:
                maker.add(Block("paragraph", chart.chart_title.text_frame.text, place=place))
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        notes = slide.notes_slide.notes_text_frame.text.strip()
        if notes:
            maker.add(Block("paragraph", f"Notes: {_lines(notes)}", place=place))


def _shapes(shapes: Any, depth: int) -> Iterator[Any]:
    """All shapes with text but titles and what stands on every slide, groups opened."""
    for shape in shapes:
        if shape.is_placeholder and shape.placeholder_format.type in (*_TITLES, *_FURNITURE):
            continue
        if hasattr(shape, "shapes"):
            if depth < _MAX_GROUPS:
                yield from _shapes(shape.shapes, depth + 1)
        else:
            yield shape


def _add_text(maker: PartMaker, shape: Any, place: Place) -> None:
    """A placeholder's paragraphs are items of a list, unless there is only one; those of other
    shapes are paragraphs."""
    paragraphs = [p for p in shape.text_frame.paragraphs if p.text.strip()]
    is_list = shape.is_placeholder and (
        len(paragraphs) > 1 or any(paragraph.level for paragraph in paragraphs)
    )
    for paragraph in paragraphs:
        text = _lines(paragraph.text.strip())
        if is_list:
            maker.item(text, paragraph.level, place=place)
        else:
            maker.add(Block("paragraph", text, place=place))


def _lines(text: str) -> str:
    """PowerPoint breaks lines by vertical tabs."""
    return text.replace("\v", "\n")
