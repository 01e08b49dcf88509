"""Files that the tests make: PDFs written by hand, office files with parts exchanged."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import docx
import pptx

Text = tuple[float, float, float, str]
"""A line of a page: its size, x and y in points, and what it says (Latin-1)."""


@dataclass(frozen=True)
class Bookmark:
    title: str
    page: int
    level: int = 0


def pdf(
    pages: Sequence[Sequence[Text]],
    *,
    outline: Sequence[Bookmark] = (),
    title: str = "",
    size: tuple[int, int] = (595, 842),
    font: str = "Helvetica",
) -> bytes:
    """A PDF of these pages; a line in a size below 0 is set in Courier, in that size."""
    objects: list[bytes] = [b"", b""]  # the catalogue and the tree of pages come last

    def add(content: bytes) -> int:
        objects.append(content)
        return len(objects)

    prose = add(b"<< /Type /Font /Subtype /Type1 /BaseFont /%s >>" % font.encode())
    code = add(b"<< /Type /Font /Subtype /Type1 /BaseFont /Courier >>")
    numbers = []
    for lines in pages:
        drawn = b"\n".join(_draw(line) for line in lines)
        stream = add(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn))
        numbers.append(
            add(
                b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Contents %d 0 R "
                b"/Resources << /Font << /F1 %d 0 R /F2 %d 0 R >> >> >>"
                % (*size, stream, prose, code)
            )
        )
    kids = b" ".join(b"%d 0 R" % number for number in numbers)
    objects[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(pages), kids)
    catalogue = b"<< /Type /Catalog /Pages 2 0 R"
    if outline:
        catalogue += b" /Outlines %d 0 R" % _add_outline(objects, outline, numbers)
    objects[0] = catalogue + b" >>"
    info = add(b"<< /Title (%s) >>" % _escape(title))
    return _written(objects, info)


def _draw(line: Text) -> bytes:
    size, x, y, text = line
    name = b"F2" if size < 0 else b"F1"
    return b"BT /%s %.1f Tf %.1f %.1f Td (%s) Tj ET" % (name, abs(size), x, y, _escape(text))


def _escape(text: str) -> bytes:
    for special in "\\()":
        text = text.replace(special, f"\\{special}")
    return text.encode("latin-1")


def _add_outline(objects: list[bytes], marks: Sequence[Bookmark], pages: Sequence[int]) -> int:
    """Bookmarks in a tree, each after those of its level; returns the root's number."""
    root = len(objects) + 1
    numbers = [root + 1 + i for i in range(len(marks))]

    def children(parent: int, level: int) -> list[int]:
        found = []
        for i in range(parent + 1, len(marks)):
            if marks[i].level < level:
                break
            if marks[i].level == level:
                found.append(i)
        return found

    def family(parent: int, level: int) -> bytes:
        inner = children(parent, level)
        if not inner:
            return b""
        return b" /First %d 0 R /Last %d 0 R /Count %d" % (
            numbers[inner[0]],
            numbers[inner[-1]],
            len(inner),
        )

    objects.append(b"<< /Type /Outlines%s >>" % family(-1, 0))
    for i, mark in enumerate(marks):
        parents = [j for j in range(i) if marks[j].level == mark.level - 1]
        parent = numbers[parents[-1]] if parents else root
        siblings = children(parents[-1] if parents else -1, mark.level)
        after = [j for j in siblings if j > i]
        entry = b"<< /Title (%s) /Parent %d 0 R" % (_escape(mark.title), parent)
        entry += b" /Next %d 0 R" % numbers[after[0]] if after else b""
        entry += b" /Dest [%d 0 R /XYZ 0 800 0]" % pages[mark.page - 1]
        objects.append(entry + family(i, mark.level + 1) + b" >>")
    return root


def _written(objects: Sequence[bytes], info: int) -> bytes:
    data = b"%PDF-1.7\n"
    places = []
    for number, content in enumerate(objects, start=1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    start = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    data += b"".join(b"%010d 00000 n \n" % place for place in places)
    data += b"trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1,
        info,
        start,
    )
    return data


def many_pages_pdf(count: int) -> bytes:
    """A small PDF whose tree of pages names the same page again and again."""
    data = pdf([[(12, 72, 700, "one")]])
    page = data.split(b"/Kids [")[1].split(b"]")[0]
    return data.replace(
        b"/Count 1 /Kids [%s]" % page, b"/Count %d /Kids [%s]" % (count, b" ".join([page] * count))
    )


def paragraph_lines(
    text: Sequence[str], *, x: float = 72, y: float = 700, size: float = 11, leading: float = 13
) -> list[Text]:
    """Lines of prose under each other."""
    return [(size, x, y - leading * i, line) for i, line in enumerate(text)]


def docx_file(document: docx.document.Document | None = None) -> bytes:
    """The document, or an empty one, as a file."""
    buffer = io.BytesIO()
    (document or docx.Document()).save(buffer)
    return buffer.getvalue()


def pptx_file(presentation: pptx.presentation.Presentation | None = None) -> bytes:
    """The presentation, or an empty one, as a file."""
    buffer = io.BytesIO()
    (presentation or pptx.Presentation()).save(buffer)
    return buffer.getvalue()


def zip_of(members: Mapping[str, bytes]) -> bytes:
    """A zip file of these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def with_members(data: bytes, members: Mapping[str, bytes]) -> bytes:
    """The zip file `data` with these members exchanged or added."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as source,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as sink,
    ):
        for info in source.infolist():
            if info.filename not in members:
                sink.writestr(info.filename, source.read(info))
        for name, content in members.items():
            sink.writestr(name, content)
    return buffer.getvalue()


def word_xml(body: str, *, dtd: str = "") -> bytes:
    """The main part of a Word document."""
    names = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>{dtd}<w:document {names}><w:body>{body}'
        "<w:sectPr/></w:body></w:document>"
    ).encode()


def word_paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


LAUGHS = (
    '<!DOCTYPE l [<!ENTITY a "ha">'
    + "".join(
        f'<!ENTITY {name} "{f"&{before};" * 10}">'
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + "]>"
)
"""Entities that become 200 million letters when `&i;` is taken for what it says."""
