"""Prints the README's file tree: each file with the first sentence of its own description."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("engine", "server")
_WIDTH = 118
_HIDDEN = {"__init__.py", "__pycache__", "versions"}
_OTHERS = (
    ("web/templates/", "the page, Jinja"),
    ("web/static/", "its style sheets, ES modules and vendored libraries with their licences"),
    ("tests/", "mirrors the source; contracts/, properties/, e2e/ and support/ beside it"),
)


def file_tree() -> str:
    """The tree as text, two spaces for each folder."""
    lines: list[str] = []
    for package in PACKAGES:
        folder = ROOT / package
        lines.append(_line(0, f"{package}/", _description(folder / "__init__.py")))
        lines += _entries(folder, 1)
    lines += ["web/"]
    lines += [_line(1, path.split("/", 1)[1], text) for path, text in _OTHERS[:2]]
    lines += [_line(0, *_OTHERS[2]), "scripts/"]
    lines += [
        _line(1, path.name, _description(path))
        for path in sorted((ROOT / "scripts").iterdir())
        if path.suffix in {"", ".py"} and path.is_file()
    ]
    return "\n".join(lines)


def _entries(folder: Path, depth: int) -> Iterator[str]:
    files = sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name))
    for path in files:
        if path.name in _HIDDEN:
            continue
        if path.is_dir():
            yield _line(depth, f"{path.name}/", _description(path / "__init__.py"))
            yield from _entries(path, depth + 1)
        elif path.suffix == ".py":
            yield _line(depth, path.name, _description(path))


def _line(depth: int, name: str, text: str) -> str:
    start = "  " * depth + name
    room = _WIDTH - 30
    if len(text) > room:
        text = text[: room - 1].rsplit(" ", 1)[0].rstrip(",;:–") + " …"
    return f"{start:<29} {text}".rstrip()


def _description(path: Path) -> str:
    """The first sentence that a file says about itself."""
    if not path.exists():
        return ""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        about = ast.get_docstring(ast.parse(text)) or ""
    else:
        comment = re.search(r"^# (.*)$", text, re.MULTILINE)
        about = comment[1] if comment else ""
    about = " ".join(about.split("\n\n")[0].split()).replace("`", "")
    # `BlockPool: hands out …` in block_pool.py says its name twice.
    about = re.sub(r"^(\w*[A-Z_]\w*(?:, | and )?)+: ", "", about)
    return re.split(r"(?<=[\w)])[.;](?: |$)", about, maxsplit=1)[0]


if __name__ == "__main__":
    print(file_tree())
