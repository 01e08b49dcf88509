"""`pipe_table`: rows of cells as a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence

from server.app.materials.document import NOWHERE, Block, Place


def pipe_table(rows: Sequence[Sequence[str]], place: Place = NOWHERE) -> Block:
    """A table block; the first row is its head. A table of one column or one row is a
    paragraph or list of what is in it, which reads better."""
    cleaned = [[cell_text(cell) for cell in row] for row in rows]
    cleaned = [row for row in cleaned if any(row)]
    width = max((len(row) for row in cleaned), default=0)
    if width == 1 or len(cleaned) == 1:
        cells = [cell for row in cleaned for cell in row if cell]
        return Block("paragraph", "\n".join(cells), place=place)
    lines = [pipe_row([*row, *[""] * (width - len(row))]) for row in cleaned]
    head = "\n".join((*lines[:1], pipe_row(["---"] * width))) + "\n" if lines else ""
    return Block("table", "\n".join(lines[1:]), head=head, place=place)


def pipe_row(cells: Sequence[str]) -> str:
    """A line of a Markdown table, of cells that are clean."""
    return f"| {' | '.join(cells)} |"


def cell_text(text: str) -> str:
    """A cell's text in one line, with nothing in it that ends a cell."""
    return " ".join(text.split()).replace("|", "\\|")
