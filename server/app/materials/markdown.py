"""Markdown: the first heading of level 1 is the title."""

from __future__ import annotations

from pathlib import PurePath

from server.app.materials.text import decode_text
from server.app.passages import Document, Section, first_heading


class MarkdownParser:
    """CommonMark with tables."""

    kind = "markdown"
    suffixes = frozenset({".md", ".markdown"})

    def parse(self, name: str, data: bytes) -> Document:
        """The document in `data`. Raises UndecodableTextError."""
        text = decode_text(data, name=name).text
        return Document(first_heading(text) or PurePath(name).stem, (Section(text),))
