"""`Detokenizer`: one sequence's tokens to text, never half a character.

Tokens add bytes, not characters: one character may lie in several tokens. Bytes that can still
become a character wait; bytes that never can become U+FFFD, as in a whole decode.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable

from engine.text.stops import StopMatcher, StopResult

_UTF8 = codecs.getincrementaldecoder("utf-8")


class TokenTexts(dict[int, str | None]):
    """For each token id its text, if its bytes are whole characters; else None. Filled as ids are
    asked for. Owned by the engine thread."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        super().__init__()
        self._token_bytes = token_bytes

    def __missing__(self, token_id: int) -> str | None:
        try:
            text = self[token_id] = self._token_bytes(token_id).decode()
        except UnicodeDecodeError:
            self[token_id] = None
            return None
        return text


class Detokenizer:
    """Incremental UTF-8 and stop strings for one sequence. Owned by the engine thread.

    `token_bytes` gives the bytes that a token adds (see `Tokenizer.token_bytes`)."""

    __slots__ = ("_decoder", "_stops", "_token_bytes", "_unsent")

    def __init__(self, token_bytes: Callable[[int], bytes], stops: tuple[str, ...] = ()) -> None:
        self._token_bytes = token_bytes
        self._decoder = _UTF8(errors="replace")
        self._stops = StopMatcher(stops)
        self._unsent = ""

    @property
    def is_plain(self) -> bool:
        """Whether a token of whole characters, none of which begins a stop string, would come out
        as just these: nothing waits to be sent. Such a token need not be pushed."""
        return not (self._unsent or self._decoder.getstate()[0] or self._stops.is_holding)

    @property
    def first_characters(self) -> frozenset[str]:
        """What stop strings begin with."""
        return self._stops.first_characters

    def prime(self, token_ids: Iterable[int], sent: str | None = None) -> None:
        """Begins behind tokens of before, of whose text `sent` was sent (None: all). The rest
        comes out with the next push, and an unfinished character at their end is completed."""
        text = "".join(self._decoder.decode(self._token_bytes(token_id)) for token_id in token_ids)
        if sent is None or not text.startswith(sent):
            sent = text
        self._stops.prime(sent)
        self._unsent = text[len(sent) :]

    def push(self, token_id: int, *, may_stop: bool = True) -> StopResult:
        """Adds a token: the text that may be sent, and the stop string that it completed, where
        it `may_stop` the sequence."""
        text, self._unsent = self._unsent + self._decoder.decode(self._token_bytes(token_id)), ""
        return self._stops.push(text, may_match=may_stop)

    def flush(self) -> str:
        """The sequence ended without a stop string: what was held back as a possible stop. An
        unfinished character is dropped."""
        unsent, self._unsent = self._unsent, ""
        return self._stops.push(unsent).text + self._stops.flush()
