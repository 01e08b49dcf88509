"""`ControlText`: the texts of a vocabulary's control tokens, and `Shield`, which keeps them text.

All work over a large text is cut into slices: a regular expression holds the interpreter's lock
until it has found something, and nobody else's tokens should wait for that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from server.service.errors import BadRequestError

_SLICE_CHARS = 16 << 10
_PLACEHOLDERS = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))
"""Noncharacters of Unicode: texts have no use for them."""


class ControlText:
    """Immutable; used by several threads."""

    def __init__(self, special_tokens: Mapping[str, int]) -> None:
        specials = sorted(filter(None, special_tokens), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, specials))) if specials else None
        self._longest = max(map(len, specials), default=0)
        self.heads = _cuts(specials, lambda text, at: text[:at])
        self.tails = _cuts(specials, lambda text, at: text[at:])
        self.longest_cut = max(0, self._longest - 1)

    def find_all(self, text: str) -> Iterator[re.Match[str]]:
        """The control tokens in `text`, from left to right, the longest where several begin."""
        if self._pattern is None:
            return
        at, overlap = 0, self._longest - 1
        while at < len(text):
            end = at + _SLICE_CHARS
            # What begins in the slice may end behind it.
            for found in self._pattern.finditer(text, at, end + overlap):
                if found.start() >= end:
                    break
                at = found.end()
                yield found
            at = max(at, end)

    def replace_all(self, text: str, replacement: Callable[[str], str]) -> str:
        """`text` with each control token replaced; the same object where there is none."""
        parts: list[str] = []
        at = 0
        for found in self.find_all(text):
            start, end = found.span()
            parts += (text[at:start], replacement(found[0]))
            at = end
        return "".join((*parts, text[at:])) if parts else text


class Shield:
    """Covers control-token text in one request's texts, and uncovers it again. Owned by the
    thread that makes the prompt."""

    def __init__(self, control: ControlText, texts: Iterable[str]) -> None:
        """`texts`: all that will be covered."""
        self._control = control
        self._covers: dict[str, str] = {}
        written = "".join(texts)
        self._free = [char for char in _PLACEHOLDERS if char not in written]

    @property
    def is_used(self) -> bool:
        """Whether anything was covered."""
        return bool(self._covers)

    def reserve(self) -> str:
        """A character that none of the texts holds. Raises BadRequestError for lack of one."""
        if not self._free:
            raise BadRequestError(
                "messages hold too many kinds of control characters", param="messages"
            )
        return self._free.pop()

    def cover(self, text: str) -> str:
        """`text` without the text of any control token, whatever it is put next to."""
        control = self._control
        if not text:
            return text
        # Again until none is left: a match that overlapped another one was not seen.
        while (covered := control.replace_all(text, self._hide)) is not text:
            text = covered
        # A control token must not come together across the border of a content either. Its
        # last characters may stand at the start of a content, its first ones at the end.
        for size in range(min(control.longest_cut, len(text)), 0, -1):
            if text[:size] in control.tails and text[0] not in self._covers.values():
                text = self._hide(text)
            if text[-size:] in control.heads:
                text = text[:-size] + self._hide(text[-size:])
        return text

    def cover_tree(self, value: Any) -> Any:
        """The same of every text in a JSON value."""
        match value:
            case str():
                return self.cover(value)
            case list():
                return [self.cover_tree(item) for item in value]
            case dict():
                return {self.cover(key): self.cover_tree(item) for key, item in value.items()}
            case _:
                return value

    def uncover(self, text: str) -> str:
        """The text as it was written."""
        for char, cover in self._covers.items():
            text = text.replace(cover, char)
        return text

    def _hide(self, text: str) -> str:
        first = text[0]
        if first not in self._covers:
            self._covers[first] = self.reserve()
        return self._covers[first] + text[1:]


def _cuts(specials: Sequence[str], cut: Callable[[str, int], str]) -> frozenset[str]:
    return frozenset(cut(text, at) for text in specials for at in range(1, len(text)))
