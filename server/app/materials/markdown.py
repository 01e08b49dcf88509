"""Markdown: CommonMark with tables. The first heading of level 1 is the title."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from markdown_it import MarkdownIt
from markdown_it.token import Token

from server.app.materials.decoding import decode_text, require_text
from server.app.materials.document import Block, Document, ParseLimits, Part
from server.app.materials.parser import MaterialSource, Progress

_MARKDOWN = MarkdownIt("commonmark").enable("table")


class MarkdownParser:
    """Headings, lists, tables, code and quotations as they were written."""

    format = "markdown"

    def parse(self, source: MaterialSource, limits: ParseLimits, progress: Progress) -> Document:
        """The document in `source`. Raises MaterialError."""
        decoded = decode_text(source.data, name=source.name, encoding=source.encoding)
        require_text(decoded.text, source.name, limits)
        return markdown_document(
            decoded.text,
            PurePath(source.name).stem,
            encoding=decoded.encoding,
            warnings=decoded.warnings,
        )


def markdown_document(
    text: str,
    default_title: str,
    *,
    encoding: str | None = None,
    warnings: tuple[str, ...] = (),
) -> Document:
    """The document that Markdown text is; `default_title` where it has no heading of level 1."""
    tokens = _MARKDOWN.parse(text)
    title = _first_heading(tokens) or default_title
    parts = tuple(_parts(text, tokens))
    return Document(title, parts, text, MarkdownParser.format, encoding, None, warnings)


def _first_heading(tokens: Sequence[Token]) -> str | None:
    """The text of the first heading of level 1, without its marks."""
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


def _parts(text: str, tokens: Sequence[Token]) -> list[Part]:
    # markdown-it counts lines as it normalizes them.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    path: list[tuple[int, str]] = []
    parts: list[Part] = []
    headings: tuple[str, ...] = ()
    blocks: list[Block] = []
    covered = 0
    for i, token in enumerate(tokens):
        if token.level != 0 or token.map is None:
            continue
        start, end = token.map
        if stray := "\n".join(lines[covered:start]).strip():
            # What makes no block, such as link definitions, is still text that was written.
            blocks.append(Block("paragraph", stray))
        covered = max(covered, end)
        if token.type == "heading_open":
            parts.append(Part(headings, tuple(blocks)))
            level = int(token.tag[1])
            heading = plain_text(tokens[i + 1])
            path = [(other, name) for other, name in path if other < level]
            if heading:
                path.append((level, heading))
            headings, blocks = tuple(name for _, name in path), []
        else:
            _add_block(blocks, token, lines[start:end])
    if stray := "\n".join(lines[covered:]).strip():
        blocks.append(Block("paragraph", stray))
    parts.append(Part(headings, tuple(blocks)))
    return parts


def _add_block(blocks: list[Block], token: Token, lines: Sequence[str]) -> None:
    source = "\n".join(lines).rstrip()
    kind = token.type.removesuffix("_open")
    match kind:
        case "paragraph" | "html_block" | "hr":
            if source.strip(" -*_\t"):
                blocks.append(Block(kind, source))
            return
        case "table":
            rows = source.split("\n")
            block = Block(kind, "\n".join(rows[2:]), head="\n".join(rows[:2]) + "\n")
        case "fence":
            rows = source.split("\n")
            is_closed = len(rows) > 1 and rows[-1].strip().startswith(token.markup)
            body = rows[1:-1] if is_closed else rows[1:]
            block = Block(kind, "\n".join(body), rows[0] + "\n", "\n" + token.markup)
        case _:
            block = Block(kind, source)
    add_led_block(blocks, block)


def add_led_block(blocks: list[Block], block: Block) -> None:
    """Appends a list, table, piece of code or quotation, with the paragraph in front of it as its
    lead-in."""
    if blocks and blocks[-1].kind == "paragraph":
        lead = blocks.pop()
        block = replace(block, lead_in=lead.text, place=lead.place.until(block.place))
    blocks.append(block)
