"""`HtmlBlocks`: elements of a page as headings, paragraphs, lists, tables and code."""

from __future__ import annotations

from lxml import etree
from lxml.html import HtmlElement

from server.app.materials.document import Block
from server.app.materials.office_tables import pipe_table
from server.app.materials.part_maker import PartMaker

_BLOCKS = {
    *("html", "body", "main", "article", "section", "header", "hgroup", "aside", "address"),
    *("div", "center", "details", "summary", "figure", "figcaption", "form", "fieldset"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "pre", "blockquote", "hr"),
    *("ul", "ol", "li", "dl", "dt", "dd", "table", "thead", "tbody", "tfoot", "tr", "td", "th"),
}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_MAX_DEPTH = 200
"""Elements within elements; what lies deeper is taken as plain text."""


class HtmlBlocks:
    """Walks through elements and tells a `PartMaker`. One a page."""

    def __init__(self, maker: PartMaker) -> None:
        self._maker = maker
        self._pending: list[str] = []

    def add(self, node: HtmlElement) -> None:
        """Everything in `node`."""
        self._children(node, 0)
        self._flush()

    def _children(self, node: HtmlElement, depth: int) -> None:
        """Text and inline elements between blocks are paragraphs."""
        self._pending.append(node.text or "")
        for child in node:
            if child.tag in _BLOCKS:
                self._flush()
                self._block(child, depth + 1)
            elif depth < _MAX_DEPTH and _has_blocks(child):
                self._children(child, depth + 1)
            else:
                self._pending.append(_raw_text(child))
            self._pending.append(child.tail or "")

    def _block(self, node: HtmlElement, depth: int) -> None:
        tag = node.tag
        if tag in _HEADINGS:
            text = inline_text(node)
            if text:
                self._maker.heading(_HEADINGS[tag], text)
        elif tag in ("ul", "ol"):
            self._list(node, 0)
        elif tag == "pre":
            code = _raw_text(node).strip("\n")
            if code.strip():
                self._maker.code(code.expandtabs())
                self._maker.end_lines()
        elif tag == "table" and not _is_layout(node):
            self._table(node)
        elif tag == "dl":
            self._definitions(node, depth)
        elif depth < _MAX_DEPTH:
            self._children(node, depth + 1)
        else:
            self._pending.append(_raw_text(node))
        self._flush()

    def _list(self, node: HtmlElement, depth: int) -> None:
        """Items keep their own text; lists in them are items further in. Other blocks of an
        item become lines of it."""
        for item in node:
            if item.tag in ("ul", "ol"):
                self._list(item, depth + 1)
                continue
            inner = [child for child in item.iter("ul", "ol") if _list_parent(child) is item]
            text = _text_without(item, inner)
            if text:
                self._maker.item(text, depth, is_ordered=node.tag == "ol")
            if depth < _MAX_DEPTH:
                for child in inner:
                    self._list(child, depth + 1)

    def _definitions(self, node: HtmlElement, depth: int) -> None:
        """A term and what it means: one item where that is short, else blocks under the term."""
        terms: list[str] = []
        for child in node.iter("dt", "dd"):
            if _list_parent(child) is not node:
                continue
            if child.tag == "dt":
                terms.append(inline_text(child))
            elif _has_blocks(child) and depth < _MAX_DEPTH:
                self._term(terms)
                self._children(child, depth + 1)
                self._flush()
            else:
                names = ", ".join(terms)
                terms.clear()
                meaning = inline_text(child)
                self._maker.item(f"**{names}**: {meaning}" if names else meaning, 0)
        self._term(terms)

    def _term(self, terms: list[str]) -> None:
        if any(terms):
            self._maker.add(Block("paragraph", f"**{', '.join(terms)}**"))
        terms.clear()

    def _table(self, node: HtmlElement) -> None:
        caption = node.find("caption")
        if caption is not None:
            self._maker.add(Block("paragraph", inline_text(caption)))
        rows = [
            [inline_text(cell) for cell in row if cell.tag in ("td", "th")]
            for row in node.iter("tr")
            if next(row.iterancestors("table")) is node
        ]
        self._maker.add(pipe_table(rows))

    def _flush(self) -> None:
        text = " ".join("".join(self._pending).split())
        self._pending.clear()
        if text:
            self._maker.add(Block("paragraph", text))


def inline_text(node: HtmlElement) -> str:
    """An element's text in one line."""
    return " ".join(_raw_text(node).split())


def _raw_text(node: HtmlElement) -> str:
    """All text in an element; a line break is one, and pictures say what they show."""
    pieces: list[str] = []
    for event, child in etree.iterwalk(node, events=("start", "end")):
        if event == "end":
            if child is not node:
                pieces.append(child.tail or "")
            continue
        if child.tag == "br" or (child.tag in _BLOCKS and child is not node):
            pieces.append("\n")
        elif child.tag == "img":
            pieces.append(f" {child.get('alt') or ''} ")
        pieces.append(child.text or "")
    return "".join(pieces)


def _text_without(item: HtmlElement, inner: list[HtmlElement]) -> str:
    """An item's text without the lists in it."""
    left_out = set(inner)
    pieces = [item.text or ""]

    def add(node: HtmlElement) -> None:
        for child in node:
            if child in left_out:
                pieces.append(" ")
            elif child.tag in _BLOCKS and any(one in left_out for one in child.iter("ul", "ol")):
                pieces.append(child.text or "")
                add(child)
            else:
                pieces.append(_raw_text(child))
                pieces.append("\n" if child.tag in _BLOCKS else "")
            pieces.append(child.tail or "")

    add(item)
    return " ".join("".join(pieces).split())


def _list_parent(node: HtmlElement) -> HtmlElement | None:
    """The item, or definition list, that `node` belongs to."""
    kinds = ("dl",) if node.tag in ("dt", "dd") else ("li",)
    return next(node.iterancestors(*kinds), None)


def _has_blocks(node: HtmlElement) -> bool:
    return any(child.tag in _BLOCKS for child in node.iter() if child is not node)


def _is_layout(table: HtmlElement) -> bool:
    """Whether a table only places things: it holds headings, or other tables."""
    return any(True for _ in table.iter("table", "h1", "h2", "h3", "h4") if _ is not table)
