"""What is told of an engine's outputs: their text, their reasoning, their tokens' probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from engine.api import Finish, RequestOutput, Tokenizer
from server.service.token_logprobs import LogprobAligner, TokenEntry, TokenTexts

LogprobShape = Callable[[TokenTexts, Sequence[TokenEntry]], dict[str, Any]]


class Piece(NamedTuple):
    """What is new of one choice. `logprobs` None: none are told with it."""

    text: str = ""
    reasoning: str = ""
    logprobs: dict[str, Any] | None = None


class PieceReader:
    """One choice's outputs, read in order. Owned by the task that answers. A choice whose text is
    told as the engine gives it needs none: that is the hot path."""

    def __init__(self, tokenizer: Tokenizer, shape: LogprobShape) -> None:
        self._aligner = LogprobAligner(tokenizer)
        self._texts = TokenTexts(tokenizer)
        self._shape = shape

    def push(self, output: RequestOutput) -> Piece:
        """What `output` brings."""
        entries = self._aligner.push(output)
        return Piece(output.text, logprobs=self._shape(self._texts, entries) if entries else None)

    def collect(self, outputs: Sequence[RequestOutput]) -> Piece:
        """What a whole answer is, from all its outputs; `logprobs` then has its empty lists
        where there are no tokens."""
        entries = [entry for output in outputs for entry in self._aligner.push(output)]
        text = "".join(output.text for output in outputs)
        return Piece(text, logprobs=self._shape(self._texts, entries))

    def finish_detail(self, finish: Finish) -> dict[str, Any]:
        """`finish.detail` as it is told, with what only the reader knows."""
        return finish.detail.to_json()

    @property
    def reasoning_tokens(self) -> int:
        """Tokens so far that belong to the reasoning."""
        return 0
