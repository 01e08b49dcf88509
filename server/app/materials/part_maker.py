"""`PartMaker`: parts from headings, items and blocks that come one after the other."""

from __future__ import annotations

from server.app.materials.document import NOWHERE, Block, Part, Place
from server.app.materials.markdown import add_led_block

_LED = ("bullet_list", "ordered_list", "table", "fence", "blockquote")


class PartMaker:
    """Keeps the heading path; gathers neighbouring items into lists and lines into code. Not
    shared between threads."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._path: list[tuple[int, str]] = []
        self._blocks: list[Block] = []
        self._place = NOWHERE
        self._lines: list[str] = []
        self._kind = ""
        self._lines_place = NOWHERE

    @property
    def first_heading(self) -> str:
        """The first heading of the highest level so far; "" without any."""
        headed = [part.headings for part in self._parts if part.headings]
        return headed[0][0] if headed else (self._path[0][1] if self._path else "")

    def heading(self, level: int, text: str, place: Place = NOWHERE) -> None:
        """Begins a part. A heading ends those of its level and below; one without text does
        only that."""
        self.end_lines()
        self._close()
        self._path = [(other, name) for other, name in self._path if other < level]
        if text:
            self._path.append((level, text))
        self._place = place

    def add(self, block: Block) -> None:
        """Appends a block; one without text is left out."""
        self.end_lines()
        if not block.whole.strip():
            return
        if block.kind in _LED:
            add_led_block(self._blocks, block)
        else:
            self._blocks.append(block)

    def item(
        self, text: str, depth: int, *, is_ordered: bool = False, place: Place = NOWHERE
    ) -> None:
        """Appends an item to the list that is being made."""
        kind = "ordered_list" if is_ordered else "bullet_list"
        if depth == 0 and self._kind and self._kind != kind:
            self.end_lines()
        marker = "1." if is_ordered else "-"
        indent = "  " * depth
        lines = [line for line in text.split("\n") if line.strip()] or [""]
        joined = f"\n{indent}  ".join(lines)
        self._append(self._kind or kind, f"{indent}{marker} {joined}", place)

    def code(self, text: str, place: Place = NOWHERE) -> None:
        """Appends lines to the code that is being made."""
        if self._kind != "fence":
            self.end_lines()
        self._append("fence", text, place)

    def end_lines(self) -> None:
        """The list or code that is being made is over."""
        if self._lines:
            text, kind = "\n".join(self._lines), self._kind
            self._lines, self._kind = [], ""
            if kind == "fence":
                mark = "~~~" if "```" in text else "```"
                block = Block(kind, text, f"{mark}\n", f"\n{mark}", place=self._lines_place)
            else:
                block = Block(kind, _numbered(text), place=self._lines_place)
            add_led_block(self._blocks, block)

    def parts(self) -> tuple[Part, ...]:
        """All parts so far."""
        self.end_lines()
        self._close()
        return tuple(self._parts)

    def _append(self, kind: str, line: str, place: Place) -> None:
        if self._kind == "fence" and kind != "fence":
            self.end_lines()
        self._lines_place = self._lines_place.until(place) if self._lines else place
        self._kind = kind
        self._lines.append(line)

    def _close(self) -> None:
        path = tuple(name for _, name in self._path)
        if path or self._blocks:
            self._parts.append(Part(path, tuple(self._blocks), self._place))
        self._blocks = []


def _numbered(text: str) -> str:
    """The items of a list with running numbers on each level."""
    counts: dict[int, int] = {}
    lines = []
    for line in text.split("\n"):
        stripped = line.lstrip(" ")
        indent = len(line) - len(stripped)
        if stripped.startswith("1. "):
            counts = {level: n for level, n in counts.items() if level <= indent}
            counts[indent] = counts.get(indent, 0) + 1
            line = f"{' ' * indent}{counts[indent]}. {stripped[3:]}"
        lines.append(line)
    return "\n".join(lines)
