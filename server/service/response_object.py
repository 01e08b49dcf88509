"""The `response` object of `POST /v1/responses`, and its output items as they grow.

How an answer ended is told three times, from coarse to exact: `status` (`completed`, `incomplete`,
`failed`), `incomplete_details.reason` (`max_output_tokens`, or `abort` for a deadline or a server
that goes away), and `finish_detail` as on every other endpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.api import Finish, FinishReason, SamplingParams, Usage
from server.service.errors import ServiceError
from server.service.prices import PriceList
from server.service.response_schemas import ResponseBody
from server.service.token_logprobs import TokenEntry, TokenTexts

ItemKind = Literal["message", "reasoning"]

_PREFIXES: dict[ItemKind, str] = {"message": "msg_", "reasoning": "rs_"}
_REASONS = {FinishReason.LENGTH: "max_output_tokens", FinishReason.ABORT: "abort"}


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What is known of a response before it is answered. `key` is the random part of its id and
    of its items' ids; `created_at` in seconds since 1970; `max_output_tokens` is what was
    really allowed, None: as far as the window reaches."""

    key: str
    created_at: int
    model: str
    body: ResponseBody
    params: SamplingParams
    max_output_tokens: int | None
    is_lowered: bool
    prices: PriceList | None = None

    def response(self, status: str, output: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The object with everything that the request decided."""
        told: dict[str, Any] = {
            "id": f"resp_{self.key}",
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": self.body.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.body.metadata or {},
            "model": self.model,
            "output": list(output),
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": self.params.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": self.body.top_logprobs or 0,
            "top_p": self.params.top_p,
            "truncation": "disabled",
            "usage": None,
            "user": self.body.user,
        }
        if self.is_lowered:
            told["max_tokens_lowered"] = True
        return told

    def ended(
        self,
        finish: Finish,
        detail: dict[str, Any],
        output: Sequence[dict[str, Any]],
        usage: Usage,
        reasoning_tokens: int,
    ) -> dict[str, Any]:
        """The object of an answer that has ended; `detail` is what is told of `finish.detail`."""
        reason = _REASONS.get(finish.reason)
        told = self.response("completed" if reason is None else "incomplete", output)
        told["incomplete_details"] = None if reason is None else {"reason": reason}
        told["usage"] = _usage(usage, reasoning_tokens, self.prices)
        told["finish_detail"] = detail
        return told

    def failed(self, error: ServiceError, output: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The object of an answer that the server could not give."""
        told = self.response("failed", output)
        told["error"] = {"code": error.openai_type, "message": error.message}
        return told


@dataclass(slots=True)
class OutputItem:
    """One item of the output while it grows. Owned by the task that answers."""

    kind: ItemKind
    id: str
    texts: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)

    def part(self) -> dict[str, Any]:
        """Its one content part, as far as it goes."""
        text = "".join(self.texts)
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {
            "type": "output_text",
            "text": text,
            "annotations": [],
            "logprobs": list(self.logprobs),
        }

    def told(self, status: str) -> dict[str, Any]:
        """The whole item; `in_progress`: as it was when it began."""
        content = [] if status == "in_progress" else [self.part()]
        told: dict[str, Any] = {"id": self.id, "type": self.kind, "status": status}
        if self.kind == "reasoning":
            return {**told, "summary": [], "content": content}
        return {**told, "role": "assistant", "content": content}


def new_item(key: str, kind: ItemKind, index: int) -> OutputItem:
    """The `index`-th item of the response `key`."""
    return OutputItem(kind, f"{_PREFIXES[kind]}{key}{index:02d}")


def item_status(finish: Finish) -> str:
    """The status of the item that an answer ended in."""
    return "incomplete" if finish.reason in _REASONS else "completed"


def response_logprobs(texts: TokenTexts, entries: Sequence[TokenEntry]) -> dict[str, Any]:
    """`logprobs` of an output text: those of a chat, in which every token has bytes."""
    content = texts.chat(entries)["content"]
    for entry in content:
        for token in (entry, *entry["top_logprobs"]):
            if token["bytes"] is None:
                token["bytes"] = list(token["token"].encode())
    return {"content": content}


def _usage(usage: Usage, reasoning_tokens: int, prices: PriceList | None) -> dict[str, Any]:
    """The counts under this endpoint's names. What is written to the cache is not counted: that
    is every prompt."""
    told = {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    return told if prices is None else {**told, "cost": prices.cost_json(usage)}
