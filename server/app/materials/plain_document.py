"""`document_text`: parts as one Markdown text, for formats that are no text themselves."""

from __future__ import annotations

from collections.abc import Sequence

from server.app.materials.document import Part

_MAX_LEVEL = 6


def document_text(parts: Sequence[Part]) -> str:
    """Headings that begin with a part, and all blocks in their order."""
    pieces: list[str] = []
    path: tuple[str, ...] = ()
    for part in parts:
        for level, heading in enumerate(part.headings):
            if part.headings[: level + 1] != path[: level + 1]:
                pieces.append(f"{'#' * min(level + 1, _MAX_LEVEL)} {heading}")
        path = part.headings
        pieces += (block.whole for block in part.blocks)
    return "\n\n".join(pieces)
