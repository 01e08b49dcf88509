"""PDF: text, headings and places by PDFium, page by page.

A section runs on over the border of a page; every block knows its pages. Pages that are wider
than high, with few lines, are slides: each is a part of its own, under its title.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import PurePath

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from server.app.materials.document import Document, ParseLimits, Part, Place
from server.app.materials.errors import MaterialError
from server.app.materials.parser import MaterialSource, Progress
from server.app.materials.pdf_blocks import BlockMaker
from server.app.materials.pdf_furniture import without_furniture
from server.app.materials.pdf_headings import OutlineEntry, find_headings
from server.app.materials.pdf_page import Line, PageLines, PageReader, clean
from server.app.materials.pdf_slides import are_slides, slide_parts
from server.app.materials.pdf_title import document_title
from server.app.materials.plain_document import document_text

_OPEN_PAGES = 4
"""Pages kept open: with the last one PDFium would forget large fonts, and read them again."""
_PROGRESS_PAGES = 10
_FEW_CHARS = 10
_MAX_OUTLINE = 20_000
_MAX_OUTLINE_DEPTH = 12


class PdfParser:
    """Everything happens in one thread: PDFium knows no others."""

    format = "pdf"

    def parse(self, source: MaterialSource, limits: ParseLimits, progress: Progress) -> Document:
        """The document in `source`. Raises MaterialError."""
        pdf = _open(source)
        try:
            num_pages = len(pdf)
            if num_pages > limits.max_pages:
                raise MaterialError(
                    "too_many_pages", name=source.name, pages=num_pages, most=limits.max_pages
                )
            pages = list(_pages(pdf, source.name, limits, progress))
            outline = list(_outline(pdf))
            metadata = clean(str(pdf.get_metadata_value("Title")))
        finally:
            pdf.close()
        sizes = [sum(len(line.text) for line in page.lines) for page in pages]
        if sum(sizes) == 0:
            raise MaterialError("no_text", name=source.name)
        few = sum(size < _FEW_CHARS for size in sizes)
        cleaned = without_furniture(pages)
        parts = slide_parts(cleaned, outline) if are_slides(cleaned) else _parts(cleaned, outline)
        title = document_title(pages, metadata) or PurePath(source.name).stem
        return Document(
            title,
            parts,
            document_text(parts),
            self.format,
            None,
            num_pages,
            ("little_text",) if 2 * few > num_pages else (),
        )


def _open(source: MaterialSource) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(source.data)
    except pdfium.PdfiumError as error:
        is_locked = error.err_code in (pdfium_c.FPDF_ERR_PASSWORD, pdfium_c.FPDF_ERR_SECURITY)
        code = "password_required" if is_locked else "not_this_format"
        raise MaterialError(code, name=source.name) from error


def _pages(
    pdf: pdfium.PdfDocument, name: str, limits: ParseLimits, progress: Progress
) -> Iterator[PageLines]:
    reader = PageReader()
    is_open: deque[pdfium.PdfPage] = deque()
    num_pages, num_chars = len(pdf), 0
    try:
        for index in range(num_pages):
            try:
                page = pdf[index]
            except pdfium.PdfiumError:
                continue  # one broken page is no reason to refuse the others
            is_open.append(page)
            if len(is_open) > _OPEN_PAGES:
                is_open.popleft().close()
            lines = reader.read(page, index + 1)
            num_chars += sum(len(line.text) for line in lines.lines)
            if num_chars > limits.max_chars:
                raise MaterialError("too_big", name=name)
            yield lines
            if (index + 1) % _PROGRESS_PAGES == 0 or index + 1 == num_pages:
                progress(index + 1, num_pages)
    finally:
        for page in is_open:
            page.close()


def _outline(pdf: pdfium.PdfDocument) -> Iterator[OutlineEntry]:
    for number, bookmark in enumerate(pdf.get_toc(max_depth=_MAX_OUTLINE_DEPTH)):
        if number >= _MAX_OUTLINE:
            return
        target = bookmark.get_dest()
        index = target.get_index() if target is not None else None
        title = clean(bookmark.get_title())
        if target is None or index is None or not title:
            continue
        mode, view = target.get_view()
        y = view[1] if mode == pdfium_c.PDFDEST_VIEW_XYZ and len(view) > 1 else None
        yield OutlineEntry(bookmark.level, title, index + 1, y)


def _parts(pages: Sequence[PageLines], outline: Sequence[OutlineEntry]) -> tuple[Part, ...]:
    """The lines between two headings are a part, wherever pages end."""
    maker = BlockMaker(pages)
    headings = find_headings(pages, outline)
    starts = [(heading.page, heading.begin) for heading in headings]
    parts = []
    path: list[tuple[int, str]] = []
    before = _between(pages, (0, 0), starts[0] if starts else None)
    if before:
        parts.append(Part((), maker.blocks(before)))
    for i, heading in enumerate(headings):
        path = [(level, text) for level, text in path if level < heading.level]
        path.append((heading.level, heading.text))
        until = starts[i + 1] if i + 1 < len(starts) else None
        lines = _between(pages, (heading.page, heading.end), until)
        names = tuple(text for _, text in path)
        parts.append(Part(names, maker.blocks(lines), Place(page=heading.page)))
    return tuple(parts)


def _between(
    pages: Sequence[PageLines], begin: tuple[int, int], end: tuple[int, int] | None
) -> list[Line]:
    """Lines from `begin` (page, line) to `end`, or to the last."""
    found: list[Line] = []
    # Pages are in order of their numbers; those in front of `begin` need no look.
    first = next((i for i, page in enumerate(pages) if page.number >= begin[0]), len(pages))
    for page in pages[first:]:
        if end is not None and page.number > end[0]:
            break
        start = begin[1] if page.number == begin[0] else 0
        stop = end[1] if end is not None and page.number == end[0] else len(page.lines)
        found += page.lines[start:stop]
    return found
