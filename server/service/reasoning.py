"""`ReasoningSplitter`: what a model thinks between its markers, apart from what it answers.

Some models write their thinking first, between markers such as `<think>` and `</think>`: as text,
or as control tokens that the text never shows. Only what an answer begins with is thinking; a
marker behind the first word of the answer itself is text like any other.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from engine.api import RequestOutput, Tokenizer
from server.service.prompt import Prompt
from server.service.reasoning_markers import ReasoningMarkers, begins_inside

_UTF8 = codecs.getincrementaldecoder("utf-8")
_MAX_BLANK_CHARS = 256
"""Blanks before an opening marker, and in a blank line behind a closing one, that are waited
through."""
_BLANK_LINES = re.compile(rf"(?:[ \t]{{0,{_MAX_BLANK_CHARS}}}\r?\n)*")


def splitter_for(
    markers: ReasoningMarkers, tokenizer: Tokenizer, prompt: Prompt
) -> ReasoningSplitter | None:
    """The splitter of an answer to `prompt`; None: the thinking lies behind it."""
    splitter = ReasoningSplitter(
        markers, tokenizer, begins_inside=begins_inside(markers, prompt.token_ids, tokenizer)
    )
    if prompt.answer_start:
        splitter.prime(prompt.answer_start, is_prompt=True)
    if prompt.continued_token_ids:
        splitter.prime(prompt.continued_text, prompt.continued_token_ids)
    return None if splitter.is_content else splitter


class Split(NamedTuple):
    """What an output brings of either kind."""

    reasoning: str = ""
    content: str = ""


class _Phase(Enum):
    BEFORE = auto()
    """Nothing but blanks so far: thinking may still begin."""
    INSIDE = auto()
    BEHIND = auto()
    """The marker closed the thinking; blank lines are dropped until the answer's first word."""
    CONTENT = auto()


class ReasoningSplitter:
    """One answer's, fed in order. Owned by the task that answers.

    Text waits only while it may be a part of a marker, or blanks in front of a first word. However
    the answer is cut into outputs, the parts join to the same texts."""

    def __init__(
        self, markers: ReasoningMarkers, tokenizer: Tokenizer, *, begins_inside: bool = False
    ) -> None:
        self._markers = markers
        self._tokenizer = tokenizer
        self._phase = _Phase.INSIDE if begins_inside else _Phase.BEFORE
        self._decoder = _UTF8(errors="replace")
        self._num_decoded = 0
        self._held = ""
        # Where `_held` begins, in characters of the answer's new text: what came before it, in the
        # prompt or in an earlier part of the answer, has negative places.
        self._at = 0
        # Where each new token begins, and where the control markers were met first: at which place
        # of the text, and as which token.
        self._begins: list[int] = []
        self._marks: dict[int, tuple[int, int]] = {}
        self._has_thought = False
        self._num_reasoning_tokens: int | None = None
        self._content_begin: int | None = None

    @property
    def is_before(self) -> bool:
        """Whether it is open if the answer begins with thinking."""
        return self._phase is _Phase.BEFORE

    @property
    def is_inside(self) -> bool:
        """Whether the last that came is thinking."""
        return self._phase is _Phase.INSIDE

    @property
    def is_content(self) -> bool:
        """Whether all that will come is the answer's own text."""
        return self._phase is _Phase.CONTENT

    @property
    def content_begin(self) -> int | None:
        """The place in the new text from which it is the answer's own; None: not known yet."""
        return self._content_begin

    @property
    def num_settled(self) -> int:
        """How far into the new text it is known what it is."""
        return max(0, self._at)

    def is_marker(self, token_id: int) -> bool:
        """Whether a token is one of the markers, where these are control tokens."""
        return token_id in (self._markers.opening_id, self._markers.closing_id)

    @property
    def reasoning_tokens(self) -> int:
        """New tokens of the thinking, markers included."""
        if self._num_reasoning_tokens is not None:
            return self._num_reasoning_tokens
        return len(self._begins) if self.is_inside else 0

    def prime(
        self, text: str | None, token_ids: Sequence[int] = (), *, is_prompt: bool = False
    ) -> None:
        """Goes on behind the answer's earlier part: `text`, and nothing more, was told of its
        tokens (None: all of their text), or stands in the prompt (`is_prompt`)."""
        decoded = self._decode(token_ids)
        if not is_prompt and (text is None or not decoded.startswith(text)):
            text = decoded
        text = text or ""
        self._split(text, is_last=False)
        # From here on places are counted in the new text.
        self._at -= len(text)
        self._num_decoded = len(decoded) - len(text) if token_ids else 0
        num_tokens = len(self._begins)
        self._begins.clear()
        self._marks = {
            token_id: (place - len(text), index - num_tokens)
            for token_id, (place, index) in self._marks.items()
        }
        if self._content_begin is not None:
            self._content_begin = 0
        if self._num_reasoning_tokens is not None:
            self._num_reasoning_tokens = 0

    def push(self, output: RequestOutput, *, is_last: bool | None = None) -> Split:
        """What `output` brings. The last one, in the end the terminal one, brings all that
        waits."""
        if is_last is None:
            is_last = output.finish is not None
        if self._phase is _Phase.CONTENT:
            return Split(content=output.text)
        if self._phase is not _Phase.BEHIND:
            self._decode(output.token_ids)
        return self._split(output.text, is_last=is_last)

    def _split(self, text: str, *, is_last: bool) -> Split:
        self._held += text
        reasoning = ""
        if self._phase is _Phase.BEFORE:
            self._look_for_opening(is_last)
        if self._phase is _Phase.INSIDE:
            reasoning = self._think(is_last)
        if self._phase is _Phase.BEHIND:
            self._skip_blank_lines(is_last)
        if self._phase is not _Phase.CONTENT:
            return Split(reasoning)
        if self._content_begin is None:
            self._content_begin = max(0, self._at)
        return Split(reasoning, self._take(len(self._held)))

    def _look_for_opening(self, is_last: bool) -> None:
        opening = self._markers.opening
        held = self._held
        blanks = len(held) - len(held.lstrip())
        if blanks > _MAX_BLANK_CHARS:
            self._phase = _Phase.CONTENT
            return
        if self._markers.are_control:
            place = self._place_of(self._markers.opening_id)
            if place is not None and place <= blanks:
                self._take(place)
                self._phase = _Phase.INSIDE
                return
            may_come = blanks == len(held)
        else:
            if held.startswith(opening, blanks):
                self._take(blanks + len(opening))
                self._phase = _Phase.INSIDE
                return
            may_come = opening.startswith(held[blanks:])
        if is_last or not may_come:
            self._phase = _Phase.CONTENT

    def _think(self, is_last: bool) -> str:
        """What of `_held` is thinking."""
        closing, length = self._markers.closing, len(self._held)
        if self._markers.are_control:
            end = self._place_of(self._markers.closing_id)
            after = end
            kept = 0
        else:
            found = self._held.find(closing)
            end = None if found < 0 else found
            after = None if found < 0 else found + len(closing)
            kept = 0 if is_last else _num_begun(self._held, closing)
        told = self._take(length - kept if end is None else end)
        if end is not None and after is not None:
            self._take(after - end)
            self._phase = _Phase.BEHIND
            self._num_reasoning_tokens = self._count_tokens()
        if not self._has_thought:
            # The line break behind the opening marker.
            told = told.lstrip()
            self._has_thought = bool(told)
        return told

    def _skip_blank_lines(self, is_last: bool) -> None:
        blank_lines = _BLANK_LINES.match(self._held)
        assert blank_lines is not None  # it matches nothing, too
        self._take(blank_lines.end())
        is_blank_line = len(self._held) <= _MAX_BLANK_CHARS + 1 and not self._held.strip(" \t\r")
        if is_last or not is_blank_line:
            self._phase = _Phase.CONTENT

    def _take(self, count: int) -> str:
        """The first `count` characters that are held, without those of before."""
        taken, self._held = self._held[:count], self._held[count:]
        begin, self._at = self._at, self._at + count
        return taken[max(0, -begin) :]

    def _decode(self, token_ids: Sequence[int]) -> str:
        """Notes where tokens begin and which markers are among them; their text."""
        text = ""
        for token_id in token_ids:
            place = self._num_decoded + len(text)
            if self.is_marker(token_id):
                self._marks.setdefault(token_id, (place, len(self._begins)))
            self._begins.append(place)
            text += self._decoder.decode(self._tokenizer.token_bytes(token_id))
        self._num_decoded += len(text)
        return text

    def _place_of(self, marker_id: int | None) -> int | None:
        """Where a control marker stands in `_held`; None: the text has not come so far."""
        found = self._marks.get(-1 if marker_id is None else marker_id)
        if found is None or not self._at <= found[0] <= self._at + len(self._held):
            return None
        return found[0] - self._at

    def _count_tokens(self) -> int:
        """The new tokens up to the closing marker that was just taken."""
        if self._markers.closing_id is not None:
            return max(0, self._marks[self._markers.closing_id][1] + 1)
        return bisect_left(self._begins, self._at)


def _num_begun(text: str, marker: str) -> int:
    """How many characters at the end of `text` may be the beginning of `marker`."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:length]):
            return length
    return 0
