"""`cut_block`: a block that is too long for one passage becomes pieces. Pure.

It is cut between items, rows, lines or sentences, whichever it has, and inside one of these only
when that alone is too long. Each piece repeats the block's lead-in, table head or code fence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import regex

from server.app.materials.document import Block, Place

Measure = Callable[[Sequence[str]], list[int]]
"""How many tokens each text has."""

_SENTENCE_END = regex.compile(r"(?<=[。！？；!?])|(?<=[.!?;]\s)", regex.V1)
_ITEM_START = regex.compile(r"\n(?=(?:[-*+]|\d{1,9}[.)])\s)")
_SPACE = regex.compile(r"\s")


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that is cut no further, its size in tokens and where it stands."""

    text: str
    size: int
    place: Place


def cut_block(block: Block, size: int, most: int, measure: Measure) -> list[Piece]:
    """The block, of `size` tokens, as pieces of about `most` tokens or fewer."""
    if size <= most:
        return [Piece(block.whole, size, block.place)]
    lead_in, head = measure([block.lead_in, block.head])
    pieces: list[Piece] = []
    if block.lead_in and lead_in * 3 > most:
        # Too long to be repeated: a paragraph like any other.
        leading = Block("paragraph", block.lead_in, place=block.place)
        pieces += cut_block(leading, lead_in, most, measure)
        block, lead_in = replace(block, lead_in=""), 0
    room = max(most - lead_in - head, most // 3)
    cut = [replace(block, text=text, place=place) for text, place in _cut(block, room, measure)]
    sizes = measure([part.whole for part in cut])
    pieces += [Piece(b.whole, n, b.place) for b, n in zip(cut, sizes, strict=True)]
    return pieces


def _cut(block: Block, room: int, measure: Measure) -> Iterator[tuple[str, Place]]:
    """The block's text in parts of about `room` tokens."""
    match block.kind:
        case "bullet_list" | "ordered_list":
            units, joint = _ITEM_START.split(block.text), "\n"
        case "paragraph" | "blockquote" | "html_block":
            units, joint = _SENTENCE_END.split(block.text), ""
        case _:
            units, joint = block.text.split("\n"), "\n"
    cut = _cut_hard(list(enumerate(units)), room, measure)
    rest = sum(length + len(joint) for _, _, length in cut)
    target = share(rest, room)
    pending: list[str] = []
    first = size = 0
    for row, unit, length in cut:
        length += len(joint)
        is_nearest = abs(size - target) <= abs(size + length - target)
        if pending and (size + length > room + len(joint) or is_nearest):
            yield joint.join(pending), _place(block, first, row)
            rest -= size
            pending, size, target = [], 0, share(rest, room)
        if not pending:
            first = row
        pending.append(unit)
        size += length
    if pending:
        yield joint.join(pending), _place(block, first, len(units))


def share(total: int, most: int) -> float:
    """The size of each of as few parts of at most `most` as can hold `total`."""
    return total / max(1, -(-total // most))


def _place(block: Block, first: int, end: int) -> Place:
    """Where units `first` to `end` stand: rows of a table that knows its rows are counted."""
    place = block.place
    if block.kind != "table" or place.row is None:
        return place
    begin, last = place.row + first, place.row + max(end - 1, first)
    return replace(place, row=begin, to_row=last if last > begin else None)


def _cut_hard(
    units: list[tuple[int, str]], room: int, measure: Measure
) -> list[tuple[int, str, int]]:
    """The units with their sizes. One that is too long alone is halved until its parts fit: at
    white space where there is any in its middle half, and inside a word only otherwise."""
    sizes = measure([unit for _, unit in units])
    found: list[tuple[int, str, int]] = []
    for (row, unit), size in zip(units, sizes, strict=True):
        if size <= room or len(unit) < 16:
            found.append((row, unit, size))
        else:
            halves = _halves(unit, 2 ** (size // room).bit_length())
            found += _cut_hard([(row, half) for half in halves], room, measure)
    return found


def _halves(unit: str, parts: int) -> list[str]:
    """The unit in about `parts` parts, a power of two."""
    if parts == 1 or len(unit) < 16:
        return [unit]
    middle = len(unit) // 2
    quarter = len(unit) // 4
    spaces = [match.end() for match in _SPACE.finditer(unit, middle - quarter, middle + quarter)]
    middle = min(spaces, key=lambda end: abs(end - middle), default=middle)
    return [*_halves(unit[:middle], parts // 2), *_halves(unit[middle:], parts // 2)]
