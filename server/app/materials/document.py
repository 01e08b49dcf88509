"""What a parser makes of a file, and what passages are cut from it. Values only."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

HEADING_SEPARATOR = " › "


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the file something stands: pages, slides and rows count from 1, as the file orders
    them, not as they are printed. What does not apply is None; `to_…` is set only where it
    differs from the beginning."""

    page: int | None = None
    to_page: int | None = None
    slide: int | None = None
    to_slide: int | None = None
    row: int | None = None
    to_row: int | None = None

    @property
    def label(self) -> str:
        """The place in a few characters: "p. 41", "pp. 41–42", "slide 3"; "" when there is none."""
        ranges = (
            ("p.", "pp.", self.page, self.to_page),
            ("slide", "slides", self.slide, self.to_slide),
            ("row", "rows", self.row, self.to_row),
        )
        return ", ".join(
            f"{one} {first}" if last is None else f"{many} {first}–{last}"
            for one, many, first, last in ranges
            if first is not None
        )

    def until(self, other: Place) -> Place:
        """From the beginning of this place to the end of `other`, which comes later."""
        page, to_page = _range(self.page, self.to_page, other.page, other.to_page)
        slide, to_slide = _range(self.slide, self.to_slide, other.slide, other.to_slide)
        row, to_row = _range(self.row, self.to_row, other.row, other.to_row)
        return Place(page, to_page, slide, to_slide, row, to_row)

    def fields(self) -> dict[str, int]:
        """What is known, as it is stored and sent; empty when there is no place."""
        values = (self.page, self.to_page, self.slide, self.to_slide, self.row, self.to_row)
        names = ("page", "to_page", "slide", "to_slide", "row", "to_row")
        return {name: n for name, n in zip(names, values, strict=True) if n is not None}


def _range(
    first: int | None, to_first: int | None, last: int | None, to_last: int | None
) -> tuple[int | None, int | None]:
    ends = [n for n in (first, to_first, last, to_last) if n is not None]
    if not ends:
        return None, None
    begin = first if first is not None else min(ends)
    end = max(ends)
    return begin, end if end > begin else None


NOWHERE = Place()


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a document that is kept whole where possible, in Markdown.

    `kind` is what it is (paragraph, bullet_list, ordered_list, table, fence, blockquote …). When
    `text` must be cut, `head` is repeated in front of each part and `tail` behind it: the head
    of a table, the fences of code; `lead_in` is the paragraph that leads into the block."""

    kind: str
    text: str
    head: str = ""
    tail: str = ""
    lead_in: str = ""
    place: Place = NOWHERE

    @property
    def whole(self) -> str:
        return "\n\n".join(
            part for part in (self.lead_in, self.head + self.text + self.tail) if part
        )


@dataclass(frozen=True, slots=True)
class Part:
    """The blocks under one heading. `headings` is its path, from the document's highest level
    down; `place` is where the heading itself stands."""

    headings: tuple[str, ...]
    blocks: tuple[Block, ...]
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True)
class Document:
    """What a parser makes of a file. `text` is the whole of it, as the source view shows it;
    `encoding` is None for formats that have none of their own; `warnings` are codes of
    `server.app.materials.errors.WARNINGS`."""

    title: str
    parts: tuple[Part, ...]
    text: str
    format: str
    encoding: str | None = None
    num_pages: int | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PassageText:
    """A piece of a document. `headings` is the path from the title down; `locator` says in one
    line where it stands, without the title; `language` is zh or, for all else, en."""

    headings: tuple[str, ...]
    locator: str
    place: Place
    text: str
    num_tokens: int
    language: str = "en"

    @property
    def heading(self) -> str:
        """The heading path in one line."""
        return HEADING_SEPARATOR.join(self.headings)


@dataclass(frozen=True, slots=True)
class PassageLimits:
    """Sizes of passages in tokens: sections under `least` share a passage, and what is over
    `most` is cut."""

    least: int = 150
    most: int = 400


class ParseLimits(msgspec.Struct, frozen=True):
    """What one file may cost. Sizes of passages are in tokens."""

    max_pages: int = 3000
    max_chars: int = 8_000_000
    max_file_bytes: int = 64 * 1024 * 1024
    max_inflated_bytes: int = 64 * 1024 * 1024
    memory_mb: int = 768
    cpu_s: int = 60
    least_tokens: int = 150
    most_tokens: int = 400

    @property
    def passages(self) -> PassageLimits:
        return PassageLimits(self.least_tokens, self.most_tokens)
