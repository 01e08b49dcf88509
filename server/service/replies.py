"""OpenAI's reply shapes: whole objects, and stream chunks built from constant bytes.

`ChatShape` and `TextShape` say where the two endpoints differ; everything else is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.api import Finish, Usage
from server.service.answer_pieces import Piece
from server.service.errors import ServiceError
from server.service.events import to_json
from server.service.prices import PriceList
from server.service.text_json import text_json
from server.service.token_logprobs import TokenEntry, TokenTexts
from server.service.usage import total_usage, usage_json

DONE = b"data: [DONE]\n\n"
HEARTBEAT = b": waiting\n\n"


class Shape(Protocol):
    """How one endpoint names its objects and wraps a text."""

    object: str
    chunk_object: str
    id_prefix: str

    def choice(self, index: int, piece: Piece) -> dict[str, Any]:
        """A whole choice without its finish."""
        ...

    def logprobs(self, texts: TokenTexts, entries: Sequence[TokenEntry]) -> dict[str, Any]:
        """What a choice says of the probabilities of its tokens."""
        ...

    def delta(self, content: bytes) -> bytes:
        """The part of a stream choice that carries a text (given as JSON)."""
        ...

    def reasoning(self, piece: Piece) -> bytes:
        """In place of `delta`, for a piece with reasoning."""
        ...

    def opening(self) -> bytes | None:
        """The part of the first stream choice; None where there is none."""
        ...


class ChatShape:
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    id_prefix = "chatcmpl-"

    def choice(self, index: int, piece: Piece) -> dict[str, Any]:
        message = {"role": "assistant", "content": piece.text, "refusal": None}
        if piece.reasoning:
            message["reasoning_content"] = piece.reasoning
        return {"index": index, "message": message, "logprobs": piece.logprobs}

    def logprobs(self, texts: TokenTexts, entries: Sequence[TokenEntry]) -> dict[str, Any]:
        return texts.chat(entries)

    def delta(self, content: bytes) -> bytes:
        return b'"delta":{"content":%b}' % content

    def reasoning(self, piece: Piece) -> bytes:
        content = b',"content":%b' % text_json(piece.text) if piece.text else b""
        return b'"delta":{"reasoning_content":%b%b}' % (text_json(piece.reasoning), content)

    def opening(self) -> bytes | None:
        return b'"delta":{"role":"assistant","content":""}'


class TextShape:
    object = "text_completion"
    chunk_object = "text_completion"
    id_prefix = "cmpl-"

    def choice(self, index: int, piece: Piece) -> dict[str, Any]:
        return {"index": index, "text": piece.text, "logprobs": piece.logprobs}

    def logprobs(self, texts: TokenTexts, entries: Sequence[TokenEntry]) -> dict[str, Any]:
        return texts.text(entries)

    def delta(self, content: bytes) -> bytes:
        return b'"text":%b' % content

    def reasoning(self, piece: Piece) -> bytes:
        # A raw completion is the model's text, whatever the model means by it.
        return self.delta(text_json(piece.reasoning + piece.text))

    def opening(self) -> bytes | None:
        return None


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer that has ended. `detail` is what is told of `finish.detail`."""

    piece: Piece
    finish: Finish
    detail: dict[str, Any]
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """What every object of one reply has in common. `lowered`: the effective max_tokens when the
    caller had asked for more than the window has room for. `prices` None: no cost is told."""

    id: str
    created: int
    model: str
    lowered: int | None = None
    prices: PriceList | None = None


def whole_reply(shape: Shape, head: ReplyHead, choices: Sequence[Choice], usage: Usage) -> bytes:
    """The JSON of a reply that is not streamed."""
    reasoning_tokens = sum(choice.reasoning_tokens for choice in choices)
    reply: dict[str, Any] = {
        "id": head.id,
        "object": shape.object,
        "created": head.created,
        "model": head.model,
        "choices": [
            {
                **shape.choice(index, choice.piece),
                "finish_reason": choice.finish.reason.value,
                "finish_detail": choice.detail,
            }
            for index, choice in enumerate(choices)
        ],
        "usage": usage_json(usage, prices=head.prices, reasoning_tokens=reasoning_tokens or None),
    }
    if head.lowered is not None:
        reply |= {"max_tokens": head.lowered, "max_tokens_lowered": True}
    return to_json(reply)


class ChunkEncoder:
    """The frames of one stream, as `completion_stream.FrameEncoder` has them. `includes_usage`:
    every chunk has `"usage": null`, and one chunk without choices has the usage (OpenAI's
    `stream_options.include_usage`). The choices stand prompt by prompt, `num_choices` to each."""

    def __init__(
        self, shape: Shape, head: ReplyHead, *, includes_usage: bool, num_choices: int = 1
    ) -> None:
        self._shape = shape
        self._includes_usage = includes_usage
        self._num_choices = num_choices
        self._prices = head.prices
        self._head = b'data: {"id":%b,"object":%b,"created":%d,"model":%b' % (
            to_json(head.id),
            to_json(shape.chunk_object),
            head.created,
            to_json(head.model),
        )
        lowered = b""
        if head.lowered is not None:
            lowered = b',"max_tokens":%d,"max_tokens_lowered":true' % head.lowered
        self._lowered = lowered
        self._tail = b',"usage":null}\n\n' if includes_usage else b"}\n\n"
        # All of a text frame but the text and what stands right before it.
        self._text_tail = b',"logprobs":null,"finish_reason":null}]' + self._tail
        self._text_frames: dict[int, tuple[bytes, bytes]] = {}
        """By choice: what stands before and behind a text that is told alone."""

    def opening(self, index: int) -> bytes:
        """The frame that tells the role, before a choice's first text; empty where there is
        none. It also says that max_tokens was lowered."""
        delta = self._shape.opening()
        if delta is None:
            return b""
        return b'%b%b,"choices":[{"index":%d,%b%b' % (
            self._head,
            self._lowered,
            index,
            delta,
            self._text_tail,
        )

    def piece(self, index: int, piece: Piece) -> bytes:
        """A piece of a choice's text, with what is told of its tokens."""
        if piece.reasoning or piece.logprobs is not None:
            return self._rich_piece(index, piece)
        frame = self._text_frames.get(index)
        if frame is None:
            frame = self._text_frames[index] = self._text_frame(index)
        before, behind = frame
        return before + text_json(piece.text) + behind

    def _text_frame(self, index: int) -> tuple[bytes, bytes]:
        mark = b"\0"  # which no JSON holds
        delta = self._shape.delta(mark)
        whole = b'%b,"choices":[{"index":%d,%b%b' % (self._head, index, delta, self._text_tail)
        before, _, behind = whole.partition(mark)
        return before, behind

    def _rich_piece(self, index: int, piece: Piece) -> bytes:
        delta = (
            self._shape.reasoning(piece)
            if piece.reasoning
            else self._shape.delta(text_json(piece.text))
        )
        return b'%b,"choices":[{"index":%d,%b,"logprobs":%b,"finish_reason":null}]%b' % (
            self._head,
            index,
            delta,
            b"null" if piece.logprobs is None else to_json(piece.logprobs),
            self._tail,
        )

    def finish(self, index: int, finish: Finish, detail: dict[str, Any]) -> bytes:
        """The one frame of a choice that says how it ended."""
        return (
            b'%b%b,"choices":[{"index":%d,%b,"logprobs":null,"finish_reason":%b,"finish_detail":%b}]%b'
            % (
                self._head,
                self._lowered,
                index,
                self._shape.delta(b'""'),
                to_json(finish.reason.value),
                to_json(detail),
                self._tail,
            )
        )

    def last(self, usages: Sequence[Usage], reasoning_tokens: int) -> bytes:
        """The usage chunk, if it is wanted, and `[DONE]`."""
        if not self._includes_usage:
            return DONE
        total = total_usage(usages, self._num_choices)
        usage = usage_json(total, prices=self._prices, reasoning_tokens=reasoning_tokens or None)
        return b'%b,"choices":[],"usage":%b}\n\n%b' % (self._head, to_json(usage), DONE)

    def error(self, error: ServiceError) -> bytes:
        return b"data: %b\n\n" % error.openai_body()
