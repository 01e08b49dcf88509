"""`split`: a document becomes passages, along its own structure. Pure.

A passage knows its heading path and where it stands. Lists, tables, quotations and code are kept
whole, together with the paragraph that leads into them; only what is longer than the limit is cut.
A long section is cut into passages of about the same size. Short sections share a passage with
what follows them, or precedes them, under the same heading, and bold lines in it say where each
begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import regex

from server.app.block_pieces import Measure, Piece, cut_block, share
from server.app.materials.document import (
    HEADING_SEPARATOR,
    Block,
    Document,
    Part,
    PassageLimits,
    PassageText,
    Place,
)
from server.store.analysis import is_han

_BLANK_LINE = 2
"""Tokens, at most, that joining two pieces by a blank line may add."""
_MAX_JOINED_HEADING = 120


@dataclass(slots=True)
class _Draft:
    """A passage in the making: the heading paths of the sections in it, and their pieces."""

    paths: list[tuple[str, ...]]
    pieces: list[Piece]

    @property
    def size(self) -> int:
        return sum(piece.size + _BLANK_LINE for piece in self.pieces) - _BLANK_LINE

    @property
    def text(self) -> str:
        return "\n\n".join(piece.text for piece in self.pieces)

    @property
    def place(self) -> Place:
        return self.pieces[0].place.until(self.pieces[-1].place)


def estimate_tokens(text: str) -> int:
    """About how many tokens a language model makes of `text`, without a tokenizer."""
    han = len(regex.findall(r"\p{Han}", text))
    words = len(regex.findall(r"[\p{L}\p{N}--\p{Han}]+", text, regex.V1))
    marks = len(regex.findall(r"[\p{P}\p{S}]", text))
    return round(0.75 * han + 1.2 * words + 0.6 * marks)


def estimate(texts: Sequence[str]) -> list[int]:
    """`estimate_tokens` of each text: a `Measure` for where there is no tokenizer."""
    return [estimate_tokens(text) for text in texts]


def split(
    document: Document, limits: PassageLimits | None = None, measure: Measure = estimate
) -> list[PassageText]:
    """The passages of a document, in order. Every word of it is in one of them, or in its
    headings."""
    limits = limits or PassageLimits()
    parts = _with_text([_below_title(part, document.title) for part in document.parts])
    if not parts and any(part.headings for part in document.parts):
        # Nothing but the title: that is still something that can be found.
        parts = [Part((), (Block("paragraph", document.title),))]
    drafts = _join_backward(_join_forward(_drafts(parts, limits, measure), limits), limits)
    texts = [draft.text for draft in drafts]
    sizes = measure(texts)
    return [
        _passage(document.title, draft, text, size)
        for draft, text, size in zip(drafts, texts, sizes, strict=True)
    ]


def _passage(title: str, draft: _Draft, text: str, size: int) -> PassageText:
    path = _joined_path(draft.paths)
    locator = HEADING_SEPARATOR.join(p for p in (draft.place.label, *path) if p)
    language = "zh" if is_han(text) else "en"
    return PassageText((title, *path), locator, draft.place, text, size, language)


def _below_title(part: Part, title: str) -> Part:
    if part.headings[:1] == (title,):
        return Part(part.headings[1:], part.blocks, part.place)
    return part


def _with_text(parts: Sequence[Part]) -> list[Part]:
    """Headings without text of their own are dropped where the next part's path holds them;
    a heading that nothing follows keeps a passage, or it could never be found."""
    kept = []
    for i, part in enumerate(parts):
        following = parts[i + 1].headings if i + 1 < len(parts) else ()
        if part.blocks:
            kept.append(part)
        elif part.headings and following[: len(part.headings)] != part.headings:
            heading = Block("paragraph", part.headings[-1], place=part.place)
            kept.append(Part(part.headings, (heading,), part.place))
    return kept


# -- sections ---------------------------------------------------------------------------------


def _drafts(parts: Sequence[Part], limits: PassageLimits, measure: Measure) -> list[_Draft]:
    """Each part as passages of its own. All blocks are measured at once: a tokenizer in another
    process is asked seldom."""
    sizes = iter(measure([block.whole for part in parts for block in part.blocks]))
    drafts = []
    for part in parts:
        pieces = [
            piece
            for block in part.blocks
            for piece in cut_block(block, next(sizes), limits.most, measure)
        ]
        drafts += [_Draft([part.headings], packed) for packed in _pack(pieces, limits)]
    return drafts


def _pack(pieces: list[Piece], limits: PassageLimits) -> list[list[Piece]]:
    """The pieces of a section in runs of at most `limits.most` tokens, of about one size."""
    packed: list[list[Piece]] = [[]]
    rest = sum(piece.size + _BLANK_LINE for piece in pieces)
    size, target = 0, share(rest, limits.most)
    for piece in pieces:
        length = piece.size + _BLANK_LINE
        is_full = size + length > limits.most + _BLANK_LINE
        is_nearest = size >= limits.least and abs(size - target) <= abs(size + length - target)
        if packed[-1] and (is_full or is_nearest):
            rest -= size
            size, target = 0, share(rest, limits.most)
            packed.append([])
        packed[-1].append(piece)
        size += length
    return packed


# -- joining ----------------------------------------------------------------------------------


def _join_forward(drafts: list[_Draft], limits: PassageLimits) -> list[_Draft]:
    """Passages under the least size, joined with those that follow."""
    joined: list[_Draft] = []
    for draft in drafts:
        last = joined[-1] if joined else None
        if last is not None and last.size < limits.least and _can_join(last, draft, limits):
            _join(last, draft)
        else:
            joined.append(draft)
    return joined


def _join_backward(drafts: list[_Draft], limits: PassageLimits) -> list[_Draft]:
    """Passages that are still under the least size, joined with those in front of them."""
    joined: list[_Draft] = []
    for draft in drafts:
        last = joined[-1] if joined else None
        if last is not None and draft.size < limits.least and _can_join(last, draft, limits):
            _join(last, draft)
        else:
            joined.append(draft)
    return joined


def _can_join(first: _Draft, second: _Draft, limits: PassageLimits) -> bool:
    before, after = first.paths[-1], second.paths[0]
    common = _common(before, after)
    is_related = (
        before[:-1] == after[:-1]  # sections of one level
        or common == len(before)  # a section and one inside it
        or common > 0
    )
    return is_related and first.size + _BLANK_LINE + _joined_size(first, second) <= limits.most


def _joined_size(first: _Draft, second: _Draft) -> int:
    """What `second` adds, its bold heading included."""
    heading = _heading_between(first, second)
    return second.size + (estimate_tokens(heading) + _BLANK_LINE if heading else 0)


def _heading_between(first: _Draft, second: _Draft) -> str:
    before, after = first.paths[-1], second.paths[0]
    if before == after:
        return ""
    below = after[_common(before, after) :] or after[-1:]
    return f"**{HEADING_SEPARATOR.join(below)}**" if below else ""


def _join(first: _Draft, second: _Draft) -> None:
    heading = _heading_between(first, second)
    if heading:
        place = second.pieces[0].place
        begin = Place(page=place.page, slide=place.slide, row=place.row)
        first.pieces.append(Piece(heading, estimate_tokens(heading), begin))
    first.pieces += second.pieces
    first.paths += [path for path in second.paths if path != first.paths[-1]]


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many levels the two paths share."""
    shared = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        shared += 1
    return shared


def _joined_path(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The path of a passage that holds several sections: what they share, and then the rest of
    each, separated by commas; where each is inside the one before, simply the last."""
    last = paths[-1]
    if all(path == last[: len(path)] for path in paths):
        return last
    paths = [path for path in paths if path]  # what comes before the first heading has none
    shared = min(_common(paths[0], path) for path in paths)
    names = list(dict.fromkeys(HEADING_SEPARATOR.join(p[shared:]) for p in paths if p[shared:]))
    if not names:
        return paths[0][:shared]  # what follows has no heading of its own
    # "Uses, Uses › By hand" says no more than the second.
    after = [*names[1:], ""]
    names = [n for n, next_ in zip(names, after, strict=True) if not next_.startswith(f"{n} ›")]
    line = names[0]
    for name in names[1:]:
        if len(line) + len(name) > _MAX_JOINED_HEADING:
            line += ", …"
            break
        line += f", {name}"
    return (*paths[0][:shared], line)
