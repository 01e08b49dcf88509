"""`AnswerReader`: what a sequence's sampled tokens mean: their text, and whether they end it."""

from __future__ import annotations

from engine.scheduling.sequence import Sequence
from engine.text.detokenizer import Detokenizer, TokenTexts
from engine.text.protocol import Tokenizer
from engine.types import FinishDetail, FinishType

Reading = tuple[tuple[int, ...], FinishDetail | None, str]
"""Tokens as far as the sequence goes, how they end it, if they do, and their text."""


class AnswerReader:
    """One sequence's. Owned by the engine thread."""

    __slots__ = (
        "_detokenizer",
        "_final_token_ids",
        "_first_characters",
        "_is_plain",
        "_max_model_len",
        "_sequence",
        "_texts",
    )

    def __init__(
        self, sequence: Sequence, tokenizer: Tokenizer, texts: TokenTexts, *, max_model_len: int
    ) -> None:
        """`texts` are those of `tokenizer`, for all sequences."""
        request = sequence.request
        params = request.params
        self._sequence = sequence
        self._texts = texts
        self._max_model_len = max_model_len
        eos_token_ids = frozenset() if params.ignore_eos else tokenizer.eos_token_ids
        self._final_token_ids = eos_token_ids.union(params.stop_token_ids)
        self._detokenizer = Detokenizer(tokenizer.token_bytes, params.stop)
        self._detokenizer.prime(request.continued_token_ids, request.continued_text)
        self._is_plain = self._detokenizer.is_plain
        self._first_characters = self._detokenizer.first_characters

    def read_plain(self, token_id: int) -> str | None:
        """The text of the next token, where that is all there is to know: it ends nothing, and
        holds whole characters of which nothing is held back. None: `read` must be asked."""
        sequence = self._sequence
        if (
            not self._is_plain
            or token_id in self._final_token_ids
            or len(sequence.token_ids) + 1 >= sequence.length_limit
        ):
            return None
        text = self._texts[token_id]
        first_characters = self._first_characters
        if first_characters and text is not None and not first_characters.isdisjoint(text):
            return None
        return text

    def read(self, token_ids: tuple[int, ...]) -> Reading:
        """What the next tokens mean, before they are the sequence's."""
        text = ""
        detail = None
        for count, token_id in enumerate(token_ids, 1):
            detail, piece = self._read(token_id, count)
            text += piece
            if detail is not None:
                token_ids = token_ids[:count]
                break
        self._is_plain = self._detokenizer.is_plain
        return token_ids, detail, text

    def flush(self) -> str:
        """The sequence ended without a stop string: the text that was held back."""
        return self._detokenizer.flush()

    def _read(self, token_id: int, count: int) -> tuple[FinishDetail | None, str]:
        """The `count`-th new token: how it ends the sequence, if it does, and its text."""
        sequence = self._sequence
        request = sequence.request
        params = request.params
        if token_id in self._final_token_ids:
            if token_id in params.stop_token_ids:
                return FinishDetail(FinishType.STOP_TOKEN, token_id), ""
            return FinishDetail(FinishType.EOS), ""
        num_tokens = sequence.num_tokens + count
        num_answer_tokens = num_tokens - len(request.prompt_token_ids)
        text, matched = self._detokenizer.push(
            token_id, may_stop=num_answer_tokens > params.min_tokens
        )
        if matched is not None:
            return FinishDetail(FinishType.STOP_STRING, matched), text
        if num_tokens < sequence.length_limit:
            return None, text
        if params.max_tokens is not None and (
            num_tokens - sequence.num_prompt_tokens >= params.max_tokens
        ):
            return FinishDetail(FinishType.MAX_TOKENS), text
        if num_tokens >= self._max_model_len:
            return FinishDetail(FinishType.CONTEXT_WINDOW), text
        return FinishDetail(FinishType.KV_CAPACITY), text
