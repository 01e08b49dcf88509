"""CSV: one table, whose rows are counted as the file counts them."""

from __future__ import annotations

import csv
import io
from pathlib import PurePath

from server.app.materials.decoding import decode_text, require_text
from server.app.materials.document import Block, Document, ParseLimits, Part, Place
from server.app.materials.errors import MaterialError
from server.app.materials.office_tables import cell_text, pipe_row
from server.app.materials.parser import MaterialSource, Progress

_DELIMITERS = ",;\t|"
_SAMPLE_CHARS = 16 * 1024


class CsvParser:
    """Commas, semicolons, tabs or bars, whichever the file has."""

    format = "csv"

    def parse(self, source: MaterialSource, limits: ParseLimits, progress: Progress) -> Document:
        """The document in `source`. Raises MaterialError."""
        decoded = decode_text(source.data, name=source.name, encoding=source.encoding)
        require_text(decoded.text, source.name, limits)
        try:
            rows = list(csv.reader(io.StringIO(decoded.text), _dialect(decoded.text, source.name)))
        except csv.Error as error:
            raise MaterialError("not_this_format", name=source.name) from error
        path = PurePath(source.name)
        return Document(
            path.stem,
            (Part((), (_table(rows),)),),
            decoded.text,
            self.format,
            decoded.encoding,
            None,
            decoded.warnings,
        )


def _dialect(text: str, name: str) -> type[csv.Dialect]:
    if name.lower().endswith(".tsv"):
        return csv.excel_tab
    try:
        return csv.Sniffer().sniff(text[:_SAMPLE_CHARS], _DELIMITERS)
    except csv.Error:
        return csv.excel


def _table(rows: list[list[str]]) -> Block:
    """Empty rows stay, so that each line of the block is one row of the file."""
    cleaned = [[cell_text(cell) for cell in row] for row in rows]
    while cleaned and not any(cleaned[-1]):
        cleaned.pop()
    width = max(len(row) for row in cleaned)
    names, first = (cleaned[0], 2) if _is_head(cleaned) else ([], 1)
    lines = [pipe_row(row + [""] * (width - len(row))) for row in cleaned[first - 1 :]]
    head = f"{pipe_row(names + [''] * (width - len(names)))}\n{pipe_row(['---'] * width)}\n"
    last = first + len(lines) - 1
    place = Place(row=first, to_row=last if last > first else None)
    return Block("table", "\n".join(lines), head=head, place=place)


def _is_head(rows: list[list[str]]) -> bool:
    """Whether the first row names columns: short words, each once, and no numbers."""
    first = rows[0]
    return (
        len(rows) > 1
        and all(first)
        and len(set(first)) == len(first)
        and not any(cell[:1].isdigit() for cell in first)
    )
