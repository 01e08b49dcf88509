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
_DELIMITER = re.compile(r"\s*+(?:\|\s*+)?:?-++:?\s*+(?:\|\s*+:?-++:?\s*+)*+\|?\s*")
_BARE_ROW = re.compile(r"\s*\|.*\|\s*")
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
    the names of its columns. `listed` numbers the lists and tables of the text, from 1: in which
    one it stands; 0 outside of all."""

    start: int
    end: int
    words: str
    listed: int = 0


@dataclass(frozen=True, slots=True)
class _Block:
    """What no sentence goes beyond. `words` is None where the text itself says it."""

    start: int
    end: int
    words: str | None = None
    listed: int = 0


def sentences(text: str) -> list[Sentence]:
    """The sentences of a text in order, without the blanks around them. List items, headings, rows
    of tables and lines of code stand alone; a sentence may go on over line breaks."""
    found: list[Sentence] = []
    for block in _blocks(text):
        start = block.start
        if block.words is None:
            for match in _END.finditer(text, start, block.end):
                found += _trimmed(text, start, match.end(), block)
                start = match.end()
        found += _trimmed(text, start, block.end, block)
    return found


def is_heading(line: str) -> bool:
    """Whether a line of Markdown only names what comes: a heading, or all of it in bold type."""
    return _HEADING.match(line) is not None or _BOLD.fullmatch(line.strip()) is not None


def _trimmed(text: str, start: int, end: int, block: _Block) -> Iterator[Sentence]:
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    end -= len(part) - len(part.rstrip())
    if start < end:
        words = text[start:end] if block.words is None else block.words
        yield Sentence(start, end, words, block.listed)


def _blocks(text: str) -> Iterator[_Block]:
    lines = list(_lines(text))
    begin: int | None = None  # of the paragraph so far
    head: tuple[str, str] | None = None  # of the table that goes on
    is_code = False
    num_listed = listed = 0  # the second: of the list or table that goes on
    for n, (start, end) in enumerate(lines):
        line = text[start:end]
        is_fence = _FENCE.match(line) is not None
        below = text[slice(*lines[n + 1])] if n + 1 < len(lines) else ""
        is_head = "|" in line and "|" in below and _DELIMITER.fullmatch(below) is not None
        is_row = head is not None and "|" in line
        # A row of a table whose head stands in another passage.
        is_bare_row = _BARE_ROW.fullmatch(line) is not None
        is_item = _LIST_ITEM.match(line) is not None
        stands_alone = is_code or is_fence or not line.strip() or is_head or is_row or is_bare_row
        if begin is not None and (stands_alone or is_item or _HEADING.match(line)):
            yield _Block(begin, start, None, listed)
            begin = None
        if is_head or ((is_bare_row or is_item) and not listed):
            num_listed = listed = num_listed + 1
        elif line.strip() and begin is None and not (is_row or is_bare_row or is_item):
            listed = 0
        if is_fence:
            is_code = not is_code
        elif is_code:
            yield _Block(start, end, text[start:end])
        elif is_head:
            head = (line, below)
        elif head is not None and is_row:
            if line != head[1]:
                row = spell_out_tables("\n".join((*head, line)))
                yield _Block(start, end, row.removeprefix("- "), listed)
        else:
            head = None
            if not line.strip():
                continue
            if _HEADING.match(line):
                yield _Block(start, end)
            elif is_bare_row:
                yield _Block(start, end, text[start:end], listed)
            elif begin is None:
                begin = start
    if begin is not None:
        yield _Block(begin, len(text), None, listed)


def _lines(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start <= len(text):
        end = text.find("\n", start)
        if end < 0:
            end = len(text)
        yield start, end
        start = end + 1
