"""What is told of an engine's outputs: their text, their reasoning, their tokens' probabilities."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from engine.api import Finish, FinishReason, FinishType, RequestOutput, Tokenizer
from server.service.reasoning import ReasoningSplitter
from server.service.token_logprobs import LogprobAligner, TokenEntry, TokenTexts

LogprobShape = Callable[[TokenTexts, Sequence[TokenEntry]], dict[str, Any]]

_STOPS = (FinishType.STOP_STRING, FinishType.STOP_TOKEN)


class Piece(NamedTuple):
    """What is new of one choice. `logprobs` None: none are told with it."""

    text: str = ""
    reasoning: str = ""
    logprobs: dict[str, Any] | None = None


class PieceReader:
    """One choice's outputs, read in order. Owned by the task that answers. A choice whose text is
    told as the engine gives it needs none: that is the hot path. `Generation.piece_reader` says
    which does."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        shape: LogprobShape | None = None,
        *,
        splitter: ReasoningSplitter | None = None,
        includes_stop: bool = False,
        echo: str = "",
        may_continue: bool = False,
    ) -> None:
        """`shape` None: no probabilities are told. `includes_stop`: what stopped the answer is a
        part of its text. `echo` stands in front of it. `may_continue`: what may be a part of a
        marker is kept back where the answer is cut, since its continuation tells."""
        self._texts = TokenTexts(tokenizer)
        self._shape = shape
        self._aligner = (
            None if shape is None else LogprobAligner(tokenizer, includes_stop=includes_stop)
        )
        self._waiting: deque[TokenEntry] = deque()
        self._splitter = splitter
        self._includes_stop = includes_stop
        self._echo = echo
        self._may_continue = may_continue
        self._num_read = 0

    def push(self, output: RequestOutput) -> Piece:
        """What `output` brings."""
        text, reasoning, entries = self._read(output)
        shape = self._shape
        return Piece(text, reasoning, shape(self._texts, entries) if shape and entries else None)

    def collect(self, outputs: Sequence[RequestOutput]) -> Piece:
        """What a whole answer is, from all its outputs; `logprobs` then has its empty lists
        where there are no tokens."""
        read = [self._read(output) for output in outputs]
        entries = [entry for _, _, some in read for entry in some]
        return Piece(
            "".join(text for text, _, _ in read),
            "".join(reasoning for _, reasoning, _ in read),
            None if self._shape is None else self._shape(self._texts, entries),
        )

    def finish_detail(self, finish: Finish) -> dict[str, Any]:
        """`finish.detail` as it is told, with what only the reader knows: an answer that ended
        while the model was still thinking says so."""
        detail = finish.detail.to_json()
        if self._splitter is not None and self._splitter.is_inside:
            detail["in"] = "reasoning"
        return detail

    @property
    def reasoning_tokens(self) -> int:
        """Tokens so far that belong to the reasoning."""
        return 0 if self._splitter is None else self._splitter.reasoning_tokens

    @property
    def num_told(self) -> int:
        """How many characters of the outputs' text were told, or passed over: all but those of
        which it is not known yet what they are."""
        splitter = self._splitter
        if splitter is None or splitter.is_content:
            return self._num_read
        return splitter.num_settled

    def _read(self, output: RequestOutput) -> tuple[str, str, Sequence[TokenEntry]]:
        """The text, the reasoning, and the entries of the text's tokens."""
        self._num_read += len(output.text)
        if self._includes_stop and output.finish is not None:
            output = self._with_stop(output, output.finish)
        entries: Sequence[TokenEntry] = ()
        if self._aligner is not None:
            entries = self._aligner.push(output)
        if self._splitter is None:
            text, reasoning = output.text, ""
        else:
            finish = output.finish
            is_last = finish is not None and (
                not self._may_continue or finish.reason is FinishReason.STOP
            )
            reasoning, text = self._splitter.push(output, is_last=is_last)
            entries = self._content_entries(self._splitter, entries)
        if self._echo:
            text, self._echo = self._echo + text, ""
        return text, reasoning, entries

    def _with_stop(self, output: RequestOutput, finish: Finish) -> RequestOutput:
        matched = finish.detail.matched
        if finish.detail.type not in _STOPS or matched is None:
            return output
        if isinstance(matched, int):
            matched = self._texts.text_of(matched)
        return msgspec.structs.replace(output, text=output.text + matched)

    def _content_entries(
        self, splitter: ReasoningSplitter, entries: Sequence[TokenEntry]
    ) -> Sequence[TokenEntry]:
        """Those of the answer's own tokens: entries wait until it is known whether they are."""
        waiting = self._waiting
        waiting.extend(entries)
        begin = splitter.content_begin
        if begin is None:
            if not splitter.is_before:
                while waiting and waiting[0].offset < splitter.num_settled:
                    waiting.popleft()
            return ()
        found = [
            one
            for one in waiting
            if one.offset >= begin and not splitter.is_marker(one.logprobs.token_id)
        ]
        waiting.clear()
        return found
