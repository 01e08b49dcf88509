"""`Detokenizer`: one sequence's tokens to text, never half a character.

Tokens add bytes, not characters: one character may lie in several tokens. Bytes that can still
become a character wait; bytes that never can become U+FFFD, as in a whole decode.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable

from engine.text.stops import StopMatcher, StopResult

_UTF8 = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Incremental UTF-8 and stop strings for one sequence. Owned by the engine thread.

    `token_bytes` gives the bytes that a token adds (see `Tokenizer.token_bytes`)."""

    __slots__ = ("_decoder", "_stops", "_token_bytes")

    def __init__(self, token_bytes: Callable[[int], bytes], stops: tuple[str, ...] = ()) -> None:
        self._token_bytes = token_bytes
        self._decoder = _UTF8(errors="replace")
        self._stops = StopMatcher(stops)

    def prime(self, token_ids: Iterable[int]) -> None:
        """Takes tokens whose text was sent before: only an unfinished character at their end
        is kept, to be completed by what follows."""
        for token_id in token_ids:
            self._decoder.decode(self._token_bytes(token_id))

    def push(self, token_id: int) -> StopResult:
        """Adds a token: the text that may be sent, and the stop string that it completed."""
        return self._stops.push(self._decoder.decode(self._token_bytes(token_id)))

    def flush(self) -> str:
        """The sequence ended without a stop string: what was held back as a possible stop. An
        unfinished character is dropped."""
        return self._stops.flush()
