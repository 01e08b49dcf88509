"""`spell_out_tables`: Markdown tables as lines that a small model can read one by one."""

from __future__ import annotations

import re

_DELIMITER = re.compile(r":?-+:?")
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_FENCE = re.compile(r"\s*(```|~~~)")


def spell_out_tables(text: str) -> str:
    """`text` with each row of a table as a list item that names every column:
    `| Midterm | 20% |` under `| Part | Weight |` becomes `- Part: Midterm; Weight: 20%`.
    Code in fences stays as it is."""
    spelled: list[str] = []
    names: list[str] = []
    is_code = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            is_code = not is_code
        if is_code or "|" not in line:
            names = []
            spelled.append(line)
        elif not names and spelled and _is_delimiter(line, below=spelled[-1]):
            names = _cells(spelled.pop())
        elif names:
            pairs = zip(names, _cells(line), strict=False)
            named = [f"{name}: {cell}" if name else cell for name, cell in pairs if cell]
            spelled.append("- " + "; ".join(named))
        else:
            spelled.append(line)
    return "\n".join(spelled)


def _is_delimiter(line: str, *, below: str) -> bool:
    cells = _cells(line)
    return (
        "|" in below
        and len(cells) == len(_cells(below))
        and all(_DELIMITER.fullmatch(cell) for cell in cells)
    )


def _cells(row: str) -> list[str]:
    row = row.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in _CELL_BORDER.split(row)]
