"""`sentences`: where each sentence of a text stands, in English and Chinese, in Markdown too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from server.app.materials.tables import spell_out_tables

_FENCE = re.compile(r"\s*(```|~~~)")
_LIST_ITEM = re.compile(r"\s*(?:[-*+•·]|\(?\d{1,3}[.)、]|[(（]\d{1,2}[)）])\s+|\s*\d{1,2}、")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
_BOLD = re.compile(r"(?:[-*+•]\s+|\d{1,3}[.)、]\s*)?(\*\*|__)(?!\s)(?:(?!\1).)+\1\s*[:：]?")
_DELIMITER = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")
# A sentence keeps what closes it, and the numbers of sources that stand behind its full stop. A
# Latin full stop ends one only before a blank and a new beginning: "e.g. this", "p. 41", "3.5".
_CLOSERS = r"[\"'”’」』）)\]*_]*"
_CITED = r"(?:\s*[\[【]\d{1,2}(?:\s*[,，、]\s*\d{1,2})*[\]】])*"
# Nor behind a title, or a word that a name follows: "Dr. Lin", "polling vs. SSE".
_ABBREVIATED = "".join(
    rf"(?<!\b{word})" for word in ("Dr", "Prof", "Mr", "Mrs", "Ms", "St", "vs", "cf")
)
_END = re.compile(
    rf"(?:[。！？；]{_CLOSERS}{_CITED}|[!?]{_CLOSERS}{_CITED}(?=\s)|"
    rf"{_ABBREVIATED}\.{_CLOSERS}{_CITED}(?=\s+[^\sa-z0-9,;:)\]]))"
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """Characters `start` to `end` of a text. `words` is what it says: of a row of a table, with
    the names of its columns."""

    start: int
    end: int
    words: str


def sentences(text: str) -> list[Sentence]:
    """The sentences of a text in order, without the blanks around them. List items, headings, rows
    of tables and lines of code stand alone; a sentence may go on over line breaks."""
    found: list[Sentence] = []
    for start, end, spelled in _blocks(text):
        if spelled is not None:
            found += _trimmed(text, start, end, spelled)
            continue
        for match in _END.finditer(text, start, end):
            found += _trimmed(text, start, match.end())
            start = match.end()
        found += _trimmed(text, start, end)
    return found


def is_heading(line: str) -> bool:
    """Whether a line of Markdown only names what comes: a heading, or all of it in bold type."""
    return _HEADING.match(line) is not None or _BOLD.fullmatch(line.strip()) is not None


def _trimmed(text: str, start: int, end: int, spelled: str | None = None) -> Iterator[Sentence]:
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    end -= len(part) - len(part.rstrip())
    if start < end:
        yield Sentence(start, end, text[start:end] if spelled is None else spelled)


def _blocks(text: str) -> Iterator[tuple[int, int, str | None]]:
    """(start, end, words or None for the text itself) of what no sentence goes beyond."""
    lines = list(_lines(text))
    begin: int | None = None  # of the paragraph so far
    head: tuple[str, str] | None = None  # of the table that goes on
    is_code = False
    for n, (start, end) in enumerate(lines):
        line = text[start:end]
        is_fence = _FENCE.match(line) is not None
        below = text[slice(*lines[n + 1])] if n + 1 < len(lines) else ""
        is_head = "|" in line and "|" in below and _DELIMITER.fullmatch(below) is not None
        is_row = head is not None and "|" in line
        stands_alone = is_code or is_fence or not line.strip() or is_head or is_row
        if begin is not None and (stands_alone or _LIST_ITEM.match(line) or _HEADING.match(line)):
            yield begin, start, None
            begin = None
        if is_fence:
            is_code = not is_code
        elif is_code:
            yield start, end, text[start:end]
        elif is_head:
            head = (line, below)
        elif head is not None and is_row:
            if line != head[1]:
                row = spell_out_tables("\n".join((*head, line)))
                yield start, end, row.removeprefix("- ")
        else:
            head = None
            if not line.strip():
                continue
            if _HEADING.match(line):
                yield start, end, None
            elif begin is None:
                begin = start
    if begin is not None:
        yield begin, len(text), None


def _lines(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start <= len(text):
        end = text.find("\n", start)
        if end < 0:
            end = len(text)
        yield start, end
        start = end + 1
