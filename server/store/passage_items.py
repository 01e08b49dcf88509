"""The items of a passage: paragraphs, entries of lists, rows of tables, one after the other. Pure.

A passage often holds several short sections, and a question is answered in one place of it. So the
index keeps where each item begins, by marks of its own between the words of the text.
"""

from __future__ import annotations

from collections.abc import Iterator

import regex

from server.store.analysis import fold, index_words
from server.store.concepts import KEY_MARK
from server.store.numbered_things import table_keys

ITEM_MARK, HEADING_MARK, SHARED_MARK = (
    KEY_MARK + name for name in ("newitem", "newhead", "newtop")
)
"""What stands before the words of an item, of a heading within the text, and of what the items
behind it share: the header of a table, the lead-in of a list."""
MARKS = frozenset((ITEM_MARK, HEADING_MARK, SHARED_MARK))

_HEADING = regex.compile(r"\*\*([^*]+)\*\*")
_ENTRY = regex.compile(r"\s{0,3}(?:[-*+•]|\(?\d{1,2}[.)、）])\s")
_DELIMITER = regex.compile(r"[\s|:\-]*-[\s|:\-]*")
_BLANK_LINES = regex.compile(r"\n\s*\n")


def body_words(text: str) -> list[str]:
    """The words of a passage's text with a mark before each part of it."""
    words: list[str] = []
    header = ""
    for mark, part in _parts(text):
        words += [mark, *index_words(part)]
        if mark == SHARED_MARK:
            header = part
        elif "|" in part and "|" in header:
            # A row alone does not say which of its numbers is a week.
            words += table_keys(fold(f"{header}\n{part}"))
    return words


def _parts(text: str) -> Iterator[tuple[str, str]]:
    blocks = [[line for line in block.split("\n") if line.strip()] for block in _split(text)]
    is_shared = False
    for n, lines in enumerate(blocks):
        is_list, is_table = _is_list(lines), _is_table(lines)
        if is_shared and not is_list:
            yield SHARED_MARK, ""
        is_shared = is_list or is_table
        heading = _HEADING.fullmatch(lines[0].strip())
        if len(lines) == 1 and heading:
            yield HEADING_MARK, heading[1]
        elif is_table:
            yield SHARED_MARK, lines[0]
            yield from ((ITEM_MARK, row) for row in lines[2:])
        elif is_list:
            yield from _entries(lines)
        elif lines[-1].rstrip().endswith((":", "：")) and _is_list(_next(blocks, n)):
            yield SHARED_MARK, "\n".join(lines)
            is_shared = True
        else:
            yield ITEM_MARK, "\n".join(lines)


def _split(text: str) -> list[str]:
    return [block for block in _BLANK_LINES.split(text) if block.strip()]


def _is_table(lines: list[str]) -> bool:
    return len(lines) > 2 and "|" in lines[0] and _DELIMITER.fullmatch(lines[1]) is not None


def _is_list(lines: list[str]) -> bool:
    return any(_ENTRY.match(line) for line in lines)


def _next(blocks: list[list[str]], n: int) -> list[str]:
    return blocks[n + 1] if n + 1 < len(blocks) else []


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Lines before the first entry lead into the list."""
    entry: list[str] = []
    mark = SHARED_MARK
    for line in lines:
        if _ENTRY.match(line):
            if entry:
                yield mark, "\n".join(entry)
            mark, entry = ITEM_MARK, []
        entry.append(line)
    yield mark, "\n".join(entry)
