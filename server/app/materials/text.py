"""Plain text: paragraphs between blank lines, under numbered headings where it has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

import regex

from server.app.materials.decoding import decode_text, require_text
from server.app.materials.document import Block, Document, ParseLimits
from server.app.materials.parser import MaterialSource, Progress
from server.app.materials.part_maker import PartMaker

_MAX_TITLE_CHARS = 80
_MAX_HEADING_CHARS = 80
_LEAST_HEADINGS = 3
_BLANK_LINE = regex.compile(r"\n[^\S\n]*\n")
_UNDERLINE = regex.compile(r"={3,}|-{3,}|~{3,}")
_NUMBERED = regex.compile(r"(?P<n>\d{1,2}(?:\.\d{1,2}){0,4})\.?\s+(?=\S*\p{L})")
_CHAPTER = regex.compile(
    r"第[\d一二三四五六七八九十百]{1,4}(?P<kind>[章讲篇部]|节)\s*\S|Chapter \d+"
)
_SENTENCE_END = (".", ",", ";", ":", "。", "，", "；", "：", "、")
_WRAPPED_HAN = regex.compile(r"(?<=[\p{Han}，。；：、！？）】》])\n[^\S\n]*(?=[\p{Han}（【《])")


class TextParser:
    """The first line is the title when it is short."""

    format = "text"

    def parse(self, source: MaterialSource, limits: ParseLimits, progress: Progress) -> Document:
        """The document in `source`. Raises MaterialError."""
        decoded = decode_text(source.data, name=source.name, encoding=source.encoding)
        text = decoded.text
        require_text(text, source.name, limits)
        first = next(line.strip() for line in text.split("\n") if line.strip())
        title = first if len(first) <= _MAX_TITLE_CHARS else PurePath(source.name).stem
        maker = PartMaker()
        found = paragraphs(text)
        has_headings = _has_headings(found)
        for block in found:
            level = _level(block.text) if has_headings else None
            if level is None:
                maker.add(block)
            else:
                maker.heading(level, block.text.split("\n")[0].strip())
        return Document(
            title, maker.parts(), text, self.format, decoded.encoding, None, decoded.warnings
        )


def paragraphs(text: str) -> list[Block]:
    """What blank lines part, without the indentation that all its lines have. Chinese lines
    that were broken to a width are whole again: a word may lie across the break."""
    return [
        Block("paragraph", _WRAPPED_HAN.sub("", _dedent(paragraph.strip("\n"))))
        for paragraph in _BLANK_LINE.split(text)
        if paragraph.strip()
    ]


def _dedent(paragraph: str) -> str:
    """Without the white space, of any kind, that all lines begin with."""
    lines = paragraph.split("\n")
    common = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[common:] for line in lines)


def _has_headings(blocks: Sequence[Block]) -> bool:
    """Whether numbers in front of lines are those of sections: some have parts, as in 2.3. One
    level alone may as well be a list."""
    levels = [level for block in blocks if (level := _level(block.text)) is not None]
    return len(levels) >= _LEAST_HEADINGS and len(set(levels)) > 1


def _level(paragraph: str) -> int | None:
    """The level of a heading, 1 being the highest; None for any other paragraph."""
    lines = paragraph.split("\n")
    is_underlined = len(lines) == 2 and _UNDERLINE.fullmatch(lines[1].strip()) is not None
    line = lines[0]
    if (
        len(line) > _MAX_HEADING_CHARS
        or line.rstrip().endswith(_SENTENCE_END)
        or (len(lines) > 1 and not is_underlined)
    ):
        return None
    if match := _NUMBERED.match(line):
        return int(match["n"].count(".")) + 1
    if match := _CHAPTER.match(line):
        return 2 if match["kind"] == "节" else 1
    if is_underlined:
        return 1 if lines[1].lstrip().startswith("=") else 2
    return None
