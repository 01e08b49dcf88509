"""HTML: the main text of a page, without navigation, scripts and what is hidden."""

from __future__ import annotations

from pathlib import PurePath

import regex
from lxml import etree
from lxml.html import HtmlElement, HTMLParser, document_fromstring

from server.app.materials.decoding import DecodedText, decode_text, encoding_by_mark, require_text
from server.app.materials.document import Document, ParseLimits
from server.app.materials.errors import MaterialError
from server.app.materials.html_blocks import HtmlBlocks, inline_text
from server.app.materials.parser import MaterialSource, Progress
from server.app.materials.part_maker import PartMaker
from server.app.materials.plain_document import document_text

_DECLARED = regex.compile(
    rb"<(?:meta[^>]{0,200}?charset|\?xml[^>]{0,100}?encoding)\s*=\s*[\"']?\s*([\w-]+)"
)
_HEAD_BYTES = 4096
_DROPPED_TAGS = (
    *("script", "style", "noscript", "template", "svg", "iframe", "object", "embed", "head"),
    *("nav", "footer", "dialog", "button", "select", "input", "textarea"),
)
_DROPPED_CLASSES = {
    *("navheader", "navfooter", "navbar", "navigation", "breadcrumb", "breadcrumbs", "related"),
    *("sidebar", "sphinxsidebar", "toc", "contents", "headerlink", "footer", "skip-link"),
}
_NOT_XML = regex.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_CHARACTER = regex.compile(r"&#(?:[xX](?P<hex>[0-9a-fA-F]{1,8})|(?P<dec>\d{1,9}));?")
_HIDDEN = regex.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", regex.IGNORECASE)


class HtmlParser:
    """lxml reads any HTML, however broken. Nothing that a page refers to is fetched."""

    format = "html"

    def parse(self, source: MaterialSource, limits: ParseLimits, progress: Progress) -> Document:
        """The document in `source`. Raises MaterialError."""
        decoded = _decode(source)
        require_text(decoded.text, source.name, limits)
        parser = HTMLParser(
            encoding="utf-8",
            huge_tree=False,
            no_network=True,
            remove_comments=True,
            remove_pis=True,
        )
        try:
            markup = _CHARACTER.sub(_checked, _NOT_XML.sub(" ", decoded.text))
            root = document_fromstring(markup.encode(), parser=parser)
        except (etree.LxmlError, ValueError, AssertionError) as error:
            raise MaterialError("no_text", name=source.name) from error
        named = root.findtext(".//title") or ""
        _drop_unread(root)
        maker = PartMaker()
        HtmlBlocks(maker).add(_main(root))
        parts = maker.parts()
        text = document_text(parts)
        require_text(text, source.name, limits)
        heading = next((inline_text(node) for node in root.iter("h1")), "")
        title = heading or " ".join(named.split()) or PurePath(source.name).stem
        return Document(title, parts, text, self.format, decoded.encoding, None, decoded.warnings)


def _decode(source: MaterialSource) -> DecodedText:
    """In the encoding that was chosen, that a mark names or that the page declares."""
    if source.encoding is None and encoding_by_mark(source.data) is None:
        declared = _DECLARED.search(source.data[:_HEAD_BYTES].lower())
        if declared is not None:
            encoding = declared[1].decode("ascii", "replace")
            try:
                return decode_text(source.data, name=source.name, encoding=encoding)
            except MaterialError:
                pass  # pages lie about their encoding
    return decode_text(source.data, name=source.name, encoding=source.encoding)


def _checked(reference: regex.Match[str]) -> str:
    """A reference to a character, or a blank where it is to none that lxml would take."""
    code = int(reference["hex"], 16) if reference["hex"] else int(reference["dec"])
    is_character = code <= 0x10FFFF and not 0xD800 <= code < 0xE000
    return " " if not is_character or _NOT_XML.match(chr(code)) else str(reference[0])


def _drop_unread(root: HtmlElement) -> None:
    for node in list(root.iter(*_DROPPED_TAGS)):
        _drop(node)
    for node in list(root.iter(etree.Element)):
        if (
            node.get("hidden") is not None
            or node.get("aria-hidden") == "true"
            or node.get("role") == "navigation"
            or not _DROPPED_CLASSES.isdisjoint((node.get("class") or "").split())
            or _HIDDEN.search(node.get("style") or "")
        ):
            _drop(node)


def _drop(node: HtmlElement) -> None:
    """Removes the element but for the text behind it."""
    if node.getparent() is not None:
        node.drop_tree()


def _main(root: HtmlElement) -> HtmlElement:
    for path in (".//main", ".//*[@role='main']", ".//article"):
        found = root.findall(path)
        if len(found) == 1:
            return found[0]
    body = root.find("body")
    return root if body is None else body
