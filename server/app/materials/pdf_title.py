"""`document_title`: what a PDF is called, as its first page prints it or as its file says."""

from __future__ import annotations

from collections.abc import Sequence

import regex

from server.app.materials.pdf_blocks import join_lines
from server.app.materials.pdf_headings import body_size
from server.app.materials.pdf_page import Line, PageLines

_LARGER = 1.25
_MAX_CHARS = 120
_FIRST_PAGES = 2
_NO_TITLE = regex.compile(
    r"untitled|\.(docx?|pptx?|tex|dvi|indd|pdf|odt|rtf|md|qxd)\b|^(microsoft|slide|title|document)"
    r"\b|^[\W\d_]*$",
    regex.IGNORECASE,
)


def document_title(pages: Sequence[PageLines], metadata: str) -> str:
    """The largest line (or lines) at the document's beginning, else the title that the file
    claims, unless that is a program's; "" where there is neither."""
    printed = _printed(pages)
    if printed:
        return printed
    return metadata if metadata and not _NO_TITLE.search(metadata) else ""


def _printed(pages: Sequence[PageLines]) -> str:
    body = body_size(pages)
    for page in pages[:_FIRST_PAGES]:
        lines = [line for line in page.lines if any(c.isalpha() for c in line.text)]
        if not lines:
            continue
        largest = max(line.size for line in lines)
        if largest < _LARGER * body and len(pages) > 1:
            return ""
        return _joined(lines, largest)
    return ""


def _joined(lines: Sequence[Line], size: float) -> str:
    begin = next(i for i, line in enumerate(lines) if line.size == size)
    title = lines[begin].text
    for line in lines[begin + 1 :]:
        if abs(line.size - size) > 0.5:
            break
        title = join_lines(title, line.text)
    return title if len(title) <= _MAX_CHARS else ""
