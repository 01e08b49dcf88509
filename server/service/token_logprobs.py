"""Log probabilities beside a choice's text: which tokens belong to the text that was sent, and
both of OpenAI's shapes for them.

There is one entry for each sampled token of the text. The EOS or stop token that ended the answer
has none, nor has a token that lies wholly in a matched stop string. In a stream an entry comes with
the text that its token begins in, so a token that is held back is told when its text is.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engine.api import FinishType, RequestOutput, Tokenizer, TokenLogprobs

_UTF8 = codecs.getincrementaldecoder("utf-8")
_ENDING_TOKENS = (FinishType.EOS, FinishType.STOP_TOKEN)


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """`offset`: the character of the choice's text that the token begins in."""

    logprobs: TokenLogprobs
    offset: int


class LogprobAligner:
    """Gives the entries of one choice out with its text. Owned by the task that answers."""

    def __init__(self, tokenizer: Tokenizer, *, includes_stop: bool = False) -> None:
        """`includes_stop`: the token that ended the answer is told, where the caller chose it."""
        self._tokenizer = tokenizer
        self._untold = (FinishType.EOS,) if includes_stop else _ENDING_TOKENS
        self._decoder = _UTF8(errors="replace")
        self._num_decoded = 0
        self._num_sent = 0
        self._waiting: deque[TokenEntry] = deque()

    def push(self, output: RequestOutput) -> tuple[TokenEntry, ...]:
        """The entries that go with `output.text`. With the terminal output all that are left."""
        for one in output.logprobs:
            self._waiting.append(TokenEntry(one, self._num_decoded))
            data = self._tokenizer.token_bytes(one.token_id)
            self._num_decoded += len(self._decoder.decode(data))
        self._num_sent += len(output.text)
        detail = None if output.finish is None else output.finish.detail.type
        if detail in self._untold and self._waiting:
            self._waiting.pop()
        found: list[TokenEntry] = []
        while self._waiting and self._waiting[0].offset < self._num_sent:
            found.append(self._waiting.popleft())
        if detail is not None and detail is not FinishType.STOP_STRING:
            # Control tokens behind the text, and the unfinished character that was dropped.
            found += self._waiting
        return tuple(found)


class TokenTexts:
    """How tokens are written in a reply. Immutable."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def _special(self) -> Mapping[int, str]:
        return {token_id: text for text, token_id in self._tokenizer.special_tokens.items()}

    def text_of(self, token_id: int) -> str:
        """What a token looks like; a part of a character is U+FFFD."""
        special = self._special.get(token_id)
        if special is not None:
            return special
        return self._tokenizer.token_bytes(token_id).decode(errors="replace")

    def chat(self, entries: Sequence[TokenEntry]) -> dict[str, Any]:
        """`choices[].logprobs` of a chat completion."""
        return {
            "content": [
                {
                    **self._token(one.logprobs.token_id, one.logprobs.logprob),
                    "top_logprobs": [self._token(*pair) for pair in one.logprobs.top],
                }
                for one in entries
            ],
            "refusal": None,
        }

    def text(self, entries: Sequence[TokenEntry]) -> dict[str, Any]:
        """`choices[].logprobs` of a text completion; its alternatives have the sampled token
        too. Tokens that are a part of a character are written as `bytes:` with escapes."""
        told = [one.logprobs for one in entries]
        has_top = any(one.top for one in told)
        return {
            "tokens": [self._key(one.token_id) for one in told],
            "token_logprobs": [one.logprob for one in told],
            "top_logprobs": [self._alternatives(one) for one in told] if has_top else None,
            "text_offset": [one.offset for one in entries],
        }

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        special = self._special.get(token_id)
        if special is not None:
            return {"token": special, "logprob": logprob, "bytes": None}
        data = self._tokenizer.token_bytes(token_id)
        return {
            "token": data.decode(errors="replace"),
            "logprob": logprob,
            "bytes": list(data),
        }

    def _alternatives(self, one: TokenLogprobs) -> dict[str, float]:
        found: dict[str, float] = {}
        # Two tokens may have one text: the likelier is told.
        for token_id, logprob in (*one.top, (one.token_id, one.logprob)):
            found.setdefault(self._key(token_id), logprob)
        return found

    def _key(self, token_id: int) -> str:
        special = self._special.get(token_id)
        if special is not None:
            return special
        data = self._tokenizer.token_bytes(token_id)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
