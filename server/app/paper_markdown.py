"""`PaperMarkdown`: Markdown as HTML for paper: no link, no image, nothing to load, and parts of the
text may be marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

# What is marked travels through Markdown between two signs. They are punctuation, so that emphasis
# and code begin and end beside them as they would without.
_OPEN, _CLOSE = "\u2e24", "\u2e25"
_SIGNS = str.maketrans("", "", _OPEN + _CLOSE)
_LOST = str.maketrans(dict.fromkeys((_OPEN, _CLOSE), "\N{REPLACEMENT CHARACTER}"))
_TAG = re.compile(rf"(<[^>]*>|[{_OPEN}{_CLOSE}])")
# What makes a line the item, heading, quotation or row that it is stays in front of the mark.
_PREFIX = re.compile(r"[ \t]*(?:(?:[-*+>]|\d{1,9}[.)]|#{1,6})[ \t]+|\|[ \t]*)*")
_RULE = re.compile(r"[\s|:=`~-]*")
"""A line that opens or closes a block, or divides the head of a table from its rows."""
_HIGHEST_HEADING = 4


class PaperMarkdown:
    """Raw HTML stays text. The address of a link stands behind its words. `keeps_lines`: a line
    break in a paragraph is one on paper. Pure."""

    def __init__(self, *, keeps_lines: bool = False) -> None:
        options = {"html": False, "breaks": keeps_lines}
        self._markdown = MarkdownIt("commonmark", options).enable("table")
        # A bracket is the number of a source, never a name for an address that stands elsewhere.
        self._markdown.disable(["html_block", "html_inline", "reference"])
        for rule in (_link_open, _link_close, _image, _heading_open, _heading_close):
            self._markdown.add_render_rule(rule.__name__.removeprefix("_"), rule)

    def render(self, text: str, marks: Sequence[Sequence[int]] = ()) -> Markup:
        """`text` as HTML; `marks` are ranges of it, in code points."""
        html = self._markdown.render(_with_signs(text.translate(_LOST), marks))
        return Markup("".join(_marked(html)))


def _with_signs(text: str, marks: Sequence[Sequence[int]]) -> str:
    parts, at = [], 0
    for start, end in sorted((start, end) for start, end in marks):
        start, end = max(start, at), min(end, len(text))
        line = text.rfind("\n", 0, start) + 1
        if prefix := _PREFIX.match(text, line):
            start = max(start, prefix.end())
        while start < end and (text[start].isspace() or text[start] == "|"):
            start += 1
        while end > start and (text[end - 1].isspace() or text[end - 1] == "|"):
            end -= 1
        if start >= end or _RULE.fullmatch(_line_at(text, start)) or _is_rule_at(text, end):
            continue
        parts += [text[at:start], _OPEN, text[start:end], _CLOSE]
        at = end
    return "".join([*parts, text[at:]])


def _is_rule_at(text: str, end: int) -> bool:
    return _RULE.fullmatch(_line_at(text, end - 1)) is not None


def _line_at(text: str, at: int) -> str:
    end = text.find("\n", at)
    return text[text.rfind("\n", 0, at) + 1 : end if end >= 0 else len(text)]


def _marked(html: str) -> Iterator[str]:
    """`html` with <mark> around each piece of text between the signs: never around a tag, so that
    what begins in one paragraph may end in another."""
    is_marked = False
    for part in _TAG.split(html):
        if part in (_OPEN, _CLOSE):
            is_marked = part == _OPEN
        elif part.startswith("<") or not is_marked or not part.strip():
            # The page's policy lets no element have a style of its own.
            yield part.translate(_SIGNS).replace(' style="text-align:', ' class="at-')
        else:
            yield f"<mark>{part}</mark>"


def _link_open(self: RendererHTML, tokens: Sequence[Token], at: int, *_: Any) -> str:
    return ""


def _link_close(self: RendererHTML, tokens: Sequence[Token], at: int, *_: Any) -> str:
    # Links hold no links.
    start = next(n for n in range(at - 1, -1, -1) if tokens[n].type == "link_open")
    address = _address(tokens[start], "href")
    words = "".join(token.content for token in tokens[start + 1 : at])
    return "" if tokens[start].markup == "autolink" or words == address else _behind(address)


def _image(self: RendererHTML, tokens: Sequence[Token], at: int, *_: Any) -> str:
    return f"{escape(tokens[at].content)}{_behind(_address(tokens[at], 'src'))}"


def _address(token: Token, name: str) -> str:
    address = str(token.attrGet(name) or "")
    # A sign that fell into it was escaped there.
    for sign in ("%E2%B8%A4", "%E2%B8%A5"):
        address = address.replace(sign, "")
    return address


def _behind(address: str) -> str:
    return f" ({escape(address)})"


def _heading_open(self: RendererHTML, tokens: Sequence[Token], at: int, *_: Any) -> str:
    return f"<{_heading(tokens[at])}>"


def _heading_close(self: RendererHTML, tokens: Sequence[Token], at: int, *_: Any) -> str:
    return f"</{_heading(tokens[at])}>\n"


def _heading(token: Token) -> str:
    """The page's own headings stand above those of a text."""
    return f"h{min(int(token.tag[1]) + _HIGHEST_HEADING - 1, 6)}"
