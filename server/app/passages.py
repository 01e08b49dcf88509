"""`split`: a document becomes passages, along its own structure. Pure.

A passage stays inside one section and knows its heading path and where it stands. Lists, tables,
quotations and code are kept whole, together with the paragraph that leads into them; only a block
longer than the limit is cut, and then its lead-in, table head or code fence is repeated in
each part. Short neighbouring sections share a passage only while it stays under the least size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import regex
from markdown_it import MarkdownIt
from markdown_it.token import Token

HEADING_SEPARATOR = " › "

Measure = Callable[[str], int]
"""How many tokens a text has, about."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document with a place of its own, such as a page. `locator` is "" where the
    document has no places but its headings. Text that is not Markdown has only paragraphs."""

    text: str
    locator: str = ""
    is_markdown: bool = True


@dataclass(frozen=True, slots=True)
class Document:
    """What a parser makes of a file."""

    title: str
    sections: tuple[Section, ...]

    @property
    def text(self) -> str:
        """The whole text, as the source view shows it."""
        return "\n\n".join(section.text for section in self.sections)


@dataclass(frozen=True, slots=True)
class PassageLimits:
    """Sizes in tokens: sections under `least` are joined, blocks over `most` are cut."""

    least: int = 20
    most: int = 260


@dataclass(frozen=True, slots=True)
class PassageText:
    """A piece of a document. `headings` is the path from the title down; `locator` says in the
    document where it stands, without the title."""

    headings: tuple[str, ...]
    locator: str
    text: str

    @property
    def heading(self) -> str:
        """The heading path in one line."""
        return HEADING_SEPARATOR.join(self.headings)


@dataclass(frozen=True, slots=True)
class _Block:
    """A piece of source that is kept whole. `head` is repeated when `text` must be cut:
    the head of a table, the opening fence of code; `tail` closes each part."""

    kind: str
    text: str
    head: str = ""
    tail: str = ""
    lead_in: str = ""

    @property
    def whole(self) -> str:
        return "\n\n".join(
            part for part in (self.lead_in, self.head + self.text + self.tail) if part
        )


@dataclass(slots=True)
class _Part:
    """The blocks under one heading."""

    headings: tuple[str, ...]
    blocks: list[_Block] = field(default_factory=list)


def estimate_tokens(text: str) -> int:
    """About how many tokens a language model makes of `text`, without a tokenizer."""
    han = len(regex.findall(r"\p{Han}", text))
    words = len(regex.findall(r"[\p{L}\p{N}--\p{Han}]+", text, regex.V1))
    marks = len(regex.findall(r"[\p{P}\p{S}]", text))
    return round(0.75 * han + 1.2 * words + 0.6 * marks)


def split(
    document: Document,
    *,
    limits: PassageLimits | None = None,
    measure: Measure = estimate_tokens,
) -> list[PassageText]:
    """The passages of a document, in order. Every word of it is in one of them."""
    limits = limits or PassageLimits()
    passages: list[PassageText] = []
    for section in document.sections:
        found = _split_section(section, document.title, limits, measure)
        passages.extend(found)
    return passages


def _split_section(
    section: Section, title: str, limits: PassageLimits, measure: Measure
) -> Iterator[PassageText]:
    parts = _markdown_parts(section.text) if section.is_markdown else _text_parts(section.text)
    for part in _join_short(parts, limits, measure):
        for text in _pack(part.blocks, limits, measure):
            headings = part.headings if part.headings[:1] == (title,) else (title, *part.headings)
            place = HEADING_SEPARATOR.join(headings[1:])
            locator = HEADING_SEPARATOR.join(p for p in (section.locator, place) if p)
            yield PassageText(headings, locator, text)


def _text_parts(text: str) -> list[_Part]:
    blocks = [
        _Block("paragraph", paragraph.strip("\n"))
        for paragraph in regex.split(r"\n[ \t]*\n", text)
        if paragraph.strip()
    ]
    return [_Part((), blocks)]


# -- Markdown ---------------------------------------------------------------------------------

_MARKDOWN = MarkdownIt("commonmark").enable("table")


def first_heading(text: str) -> str | None:
    """The text of the first heading of the highest level 1, without its marks."""
    tokens = _MARKDOWN.parse(text)
    for i, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag == "h1":
            return plain_text(tokens[i + 1]) or None
    return None


def plain_text(inline: Token) -> str:
    """An inline token's text as a reader sees it, in one line."""
    pieces = []
    for child in inline.children or ():
        if child.type in ("softbreak", "hardbreak"):
            pieces.append(" ")
        elif child.type == "image":
            pieces.append(plain_text(child))
        else:
            pieces.append(child.content)
    return " ".join("".join(pieces).split())


def _markdown_parts(text: str) -> list[_Part]:
    tokens = _MARKDOWN.parse(text)
    # markdown-it counts lines as it normalizes them.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    path: list[tuple[int, str]] = []
    parts = [_Part(())]
    covered = 0
    for i, token in enumerate(tokens):
        if token.level != 0 or token.map is None:
            continue
        start, end = token.map
        if stray := "\n".join(lines[covered:start]).strip():
            # What makes no block, such as link definitions, is still text that was written.
            parts[-1].blocks.append(_Block("paragraph", stray))
        covered = max(covered, end)
        if token.type == "heading_open":
            level = int(token.tag[1])
            heading = plain_text(tokens[i + 1])
            path = [(other, name) for other, name in path if other < level]
            if heading:
                path.append((level, heading))
            parts.append(_Part(tuple(name for _, name in path)))
        else:
            _add_block(parts[-1].blocks, token, lines[start:end])
    if stray := "\n".join(lines[covered:]).strip():
        parts[-1].blocks.append(_Block("paragraph", stray))
    return parts


def _add_block(blocks: list[_Block], token: Token, lines: Sequence[str]) -> None:
    source = "\n".join(lines).rstrip()
    kind = token.type.removesuffix("_open")
    match kind:
        case "paragraph" | "html_block" | "hr":
            if source.strip(" -*_\t"):
                blocks.append(_Block(kind, source))
            return
        case "table":
            rows = source.split("\n")
            block = _Block(kind, "\n".join(rows[2:]), head="\n".join(rows[:2]) + "\n")
        case "fence":
            rows = source.split("\n")
            is_closed = len(rows) > 1 and rows[-1].strip().startswith(token.markup)
            body = rows[1:-1] if is_closed else rows[1:]
            block = _Block(kind, "\n".join(body), rows[0] + "\n", "\n" + token.markup)
        case _:
            block = _Block(kind, source)
    if blocks and blocks[-1].kind == "paragraph":
        block = replace(block, lead_in=blocks.pop().text)
    blocks.append(block)


# -- packing ----------------------------------------------------------------------------------


def _join_short(parts: Sequence[_Part], limits: PassageLimits, measure: Measure) -> list[_Part]:
    """Short sections that follow each other under the same parent, as one."""
    joined: list[_Part] = []
    open_parent: tuple[str, ...] | None = None
    for part in parts:
        if not part.blocks:
            # A heading alone still says what follows; its text is in the path of what does.
            if part.headings:
                joined.append(part)
            continue
        size = measure(_joined(part.blocks))
        last = joined[-1] if joined else None
        if (
            last is not None
            and open_parent == part.headings[:-1]
            and size < limits.least
            and measure(_joined(last.blocks)) < limits.least
        ):
            last.blocks.append(_Block("paragraph", f"**{part.headings[-1]}**"))
            last.blocks.extend(part.blocks)
            last.headings = (*last.headings[:-1], f"{last.headings[-1]}, {part.headings[-1]}")
            continue
        joined.append(_Part(part.headings, list(part.blocks)))
        open_parent = part.headings[:-1] if part.headings else None
    return _drop_covered_headings(joined)


def _drop_covered_headings(parts: list[_Part]) -> list[_Part]:
    """Headings without text of their own are dropped where the next part's path holds them;
    a heading that nothing follows keeps a passage, or it could never be found."""
    kept = []
    for i, part in enumerate(parts):
        following = parts[i + 1].headings if i + 1 < len(parts) else ()
        if part.blocks:
            kept.append(part)
        elif following[: len(part.headings)] != part.headings:
            kept.append(_Part(part.headings, [_Block("paragraph", part.headings[-1])]))
    return kept


def _joined(blocks: Sequence[_Block]) -> str:
    return "\n\n".join(block.whole for block in blocks)


def _pack(blocks: Sequence[_Block], limits: PassageLimits, measure: Measure) -> Iterator[str]:
    """The blocks as texts of at most `limits.most` tokens, cut between blocks where possible."""
    pending: list[str] = []
    size = 0
    for block in blocks:
        for piece in _pieces(block, limits, measure):
            length = measure(piece)
            if pending and size + length > limits.most:
                yield "\n\n".join(pending)
                pending, size = [], 0
            pending.append(piece)
            size += length
    if pending:
        yield "\n\n".join(pending)


def _pieces(block: _Block, limits: PassageLimits, measure: Measure) -> Iterator[str]:
    if measure(block.whole) <= limits.most:
        yield block.whole
        return
    lead_in = block.lead_in
    if measure(lead_in) * 3 > limits.most:
        # Too long to be repeated: a paragraph like any other.
        yield from _pieces(_Block("paragraph", lead_in), limits, measure)
        lead_in = ""
    frame = measure(lead_in) + measure(block.head)
    room = max(limits.most - frame, limits.most // 3)
    for text in _cut(block, room, measure):
        yield _Block(block.kind, text, block.head, block.tail, lead_in).whole


_SENTENCE_END = r"(?<=[。！？；!?])|(?<=[.!?;]\s)"


def _cut(block: _Block, room: int, measure: Measure) -> Iterator[str]:
    """The block's text in parts of about `room` tokens: by items, rows, lines or sentences."""
    match block.kind:
        case "bullet_list" | "ordered_list":
            units, joint = regex.split(r"\n(?=(?:[-*+]|\d{1,9}[.)])\s)", block.text), "\n"
        case "paragraph" | "blockquote" | "html_block":
            units, joint = regex.split(_SENTENCE_END, block.text, flags=regex.V1), ""
        case _:
            units, joint = block.text.split("\n"), "\n"
    units = [piece for unit in units for piece in _cut_hard(unit, room, measure)]
    pending: list[str] = []
    size = 0
    for unit in units:
        length = measure(unit)
        if pending and size + length > room:
            yield joint.join(pending)
            pending, size = [], 0
        pending.append(unit)
        size += length
    if pending:
        yield joint.join(pending)


def _cut_hard(unit: str, room: int, measure: Measure) -> Iterator[str]:
    """A sentence, row or item that is too long alone: halved, at white space where there is any
    in its middle half, and inside a word only otherwise."""
    if measure(unit) <= room or len(unit) < 16:
        yield unit
        return
    middle = len(unit) // 2
    spaces = (match.end() for match in regex.finditer(r"\s", unit))
    near = [end for end in spaces if abs(end - middle) <= len(unit) // 4]
    middle = min(near, key=lambda end: abs(end - middle), default=middle)
    yield from _cut_hard(unit[:middle], room, measure)
    yield from _cut_hard(unit[middle:], room, measure)
