"""The events of a streamed response, in the order that clients of the API rely on.

`response.created`, `response.in_progress`; for each output item `output_item.added`,
`content_part.added`, its text in `delta`s, then its `done`s; and one terminal event:
`response.completed`, `response.incomplete` or `response.failed`. `sequence_number` counts from 0.
There is no `[DONE]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.api import Finish, Usage
from server.service.answer_pieces import Piece
from server.service.errors import ServiceError
from server.service.events import to_json
from server.service.response_object import (
    ItemKind,
    OutputItem,
    ResponseHead,
    item_status,
    new_item,
)
from server.service.text_json import text_json

_TEXT_EVENTS: dict[ItemKind, str] = {
    "message": "response.output_text",
    "reasoning": "response.reasoning_text",
}


class ResponseEncoder:
    """The frames of one response, as `completion_stream.FrameEncoder` has them. It has one
    choice, so every `index` is 0. Owned by the task that answers."""

    def __init__(self, head: ResponseHead) -> None:
        self._head = head
        self._num_events = 0
        self._done: list[dict[str, Any]] = []
        self._item: OutputItem | None = None
        self._delta_head = b""
        self._delta_tail = b""
        self._finish: tuple[Finish, dict[str, Any]] | None = None

    def opening(self, index: int) -> bytes:
        """That the response exists and is being answered."""
        response = self._head.response("in_progress", [])
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def piece(self, index: int, piece: Piece) -> bytes:
        """The piece's reasoning, then its text; each opens its item where it must."""
        frames = b""
        if piece.reasoning:
            frames += self._within("reasoning") + self._delta(piece.reasoning, None)
        if piece.text or piece.logprobs is not None:
            frames += self._within("message") + self._delta(piece.text, piece.logprobs)
        return frames

    def finish(self, index: int, finish: Finish, detail: dict[str, Any]) -> bytes:
        """The end of the last item. An answer always has a message, unless it was cut before."""
        self._finish = (finish, detail)
        status = item_status(finish)
        frames = b""
        if self._item is None or (self._item.kind == "reasoning" and status == "completed"):
            frames = self._within("message")
        return frames + self._close(status)

    def last(self, usages: Sequence[Usage], reasoning_tokens: int) -> bytes:
        """The terminal event, with the whole response in it."""
        assert self._finish is not None
        response = self._head.ended(*self._finish, self._done, usages[0], reasoning_tokens)
        return self._event(f"response.{response['status']}", response=response)

    def error(self, error: ServiceError) -> bytes:
        """The terminal event of a response that failed; what was said so far stays in it."""
        frames = self.opening(0) if not self._num_events else b""
        frames += self._close("incomplete")
        return frames + self._event(
            "response.failed", response=self._head.failed(error, self._done)
        )

    def _within(self, kind: ItemKind) -> bytes:
        """What must be said before a text of that kind: nothing while its item is open."""
        if self._item is not None and self._item.kind == kind:
            return b""
        frames = self._close("completed")
        item = self._item = new_item(self._head.key, kind, len(self._done))
        name = f"{_TEXT_EVENTS[kind]}.delta"
        self._delta_head = (
            b'event: %b\ndata: {"type":%b,"item_id":%b,"output_index":%d,"content_index":0,"delta":'
            % (name.encode(), to_json(name), to_json(item.id), len(self._done))
        )
        self._delta_tail = b',"logprobs":[]' if kind == "message" else b""
        return (
            frames
            + self._event(
                "response.output_item.added",
                output_index=len(self._done),
                item=item.told("in_progress"),
            )
            + self._item_event("response.content_part.added", item, part=item.part())
        )

    def _delta(self, text: str, logprobs: dict[str, Any] | None) -> bytes:
        item = self._item
        assert item is not None
        item.texts.append(text)
        tail = self._delta_tail
        if logprobs is not None:
            item.logprobs += logprobs["content"]
            tail = b',"logprobs":%b' % to_json(logprobs["content"])
        number = self._num_events
        self._num_events += 1
        return b'%b%b%b,"sequence_number":%d}\n\n' % (
            self._delta_head,
            text_json(text),
            tail,
            number,
        )

    def _close(self, status: str) -> bytes:
        """The end of the open item, if one is open."""
        item, self._item = self._item, None
        if item is None:
            return b""
        part = item.part()
        fields = {"text": part["text"]}
        if item.kind == "message":
            fields["logprobs"] = part["logprobs"]
        told = item.told(status)
        frames = self._item_event(f"{_TEXT_EVENTS[item.kind]}.done", item, **fields)
        frames += self._item_event("response.content_part.done", item, part=part)
        frames += self._event("response.output_item.done", output_index=len(self._done), item=told)
        self._done.append(told)
        return frames

    def _item_event(self, type: str, item: OutputItem, **fields: Any) -> bytes:
        return self._event(
            type, item_id=item.id, output_index=len(self._done), content_index=0, **fields
        )

    def _event(self, type: str, **fields: Any) -> bytes:
        event = {"type": type, "sequence_number": self._num_events, **fields}
        self._num_events += 1
        return b"event: %b\ndata: %b\n\n" % (type.encode(), to_json(event))


def whole_response(
    head: ResponseHead, piece: Piece, finish: Finish, detail: dict[str, Any], thought: int
) -> bytes:
    """The JSON of a response that is not streamed: the items that its stream would have.
    `thought`: tokens of the reasoning."""
    status = item_status(finish)
    output: list[dict[str, Any]] = []
    if piece.reasoning:
        is_cut = status == "incomplete" and not piece.text
        item = new_item(head.key, "reasoning", 0)
        item.texts.append(piece.reasoning)
        output.append(item.told(status if is_cut else "completed"))
    if piece.text or not output or status == "completed":
        item = new_item(head.key, "message", len(output))
        item.texts.append(piece.text)
        item.logprobs += (piece.logprobs or {}).get("content", [])
        output.append(item.told(status))
    return to_json(head.ended(finish, detail, output, finish.usage, thought))
