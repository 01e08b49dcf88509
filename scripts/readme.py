"""Writes the parts of the README that are made from the code: file tree, configuration table.

Each stands between `<!-- name -->` and `<!-- /name -->`."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.config_table import config_table
from scripts.file_tree import file_tree

README = Path(__file__).parents[1] / "README.md"


def with_made_parts(text: str) -> str:
    """The README's text with both parts as they should be now."""
    parts = {"tree": f"```tree\n{file_tree()}\n```", "configuration": config_table()}
    for name, part in parts.items():
        start, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
        block = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
        text, count = block.subn((start + part + end).replace("\\", r"\\"), text)
        if count != 1:
            raise SystemExit(f"README.md must hold one block {start.strip()}")
    return text


if __name__ == "__main__":
    README.write_text(with_made_parts(README.read_text(encoding="utf-8")), encoding="utf-8")
