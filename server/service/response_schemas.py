"""The body of `POST /v1/responses`: what is read, what is refused, and the messages in its `input`.

The endpoint keeps nothing: whatever refers to an earlier response, a conversation or a file is
refused, and `store` is answered with false. As with the other bodies, a field that is known, not
supported and would change the answer is refused by name; unknown ones are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from engine.api import SamplingParams
from server.service import schemas
from server.service.errors import BadRequestError
from server.service.messages import ChatMessage
from server.service.options import MAX_MAX_TOKENS, GenerationOptions
from server.service.template_options import TemplateOptions, template_options
from server.service.validation import check_metadata, ignored_names, told_validation

WITH_LOGPROBS = "message.output_text.logprobs"

INPUT_ROLES = ("user", "assistant", "system", "developer")
_TEXT_PARTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""The kinds of content parts, each with the field that holds its text."""


class ResponseBody(GenerationOptions, frozen=True, kw_only=True):
    """None means the default everywhere. The length of an answer is `max_output_tokens` here;
    `max_tokens` is refused."""

    input: str | list[dict[str, Any]]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    metadata: dict[str, str] | None = None
    stream: bool | None = None
    store: bool | None = None
    user: str | None = None
    service_tier: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def num_logprobs(self) -> int | None:
        """How many alternatives are told with each token's log probability; None: tell none."""
        if WITH_LOGPROBS in (self.include or ()):
            return self.top_logprobs or 0
        return self.top_logprobs or None

    def options(self) -> GenerationOptions:
        """The sampling options, by their common names. Raises BadRequestError for a `min_tokens`
        beyond `max_output_tokens`."""
        most = self.max_output_tokens
        if most is not None and (self.min_tokens or 0) > most:
            raise BadRequestError(
                f"min_tokens ({self.min_tokens}) must not be more than max_output_tokens ({most})",
                param="min_tokens",
            )
        fields = {name: getattr(self, name) for name in GenerationOptions.__struct_fields__}
        return GenerationOptions(**{**fields, "max_tokens": most})

    def template(self) -> TemplateOptions:
        """How the messages become a prompt. Raises BadRequestError."""
        return template_options(None, None, self.chat_template_kwargs)

    def messages(self) -> list[ChatMessage]:
        """The conversation: `instructions` as a system message, then the input's items, without
        the reasoning of earlier answers. Raises BadRequestError."""
        head = [] if self.instructions is None else [ChatMessage("system", self.instructions)]
        if isinstance(self.input, str):
            return [*head, ChatMessage("user", self.input)]
        read = [_message(item, f"input[{index}]") for index, item in enumerate(self.input)]
        found = [message for message in read if message is not None]
        if not found:
            raise BadRequestError("input must hold at least one message", param="input")
        return head + found


def _message(item: Mapping[str, Any], where: str) -> ChatMessage | None:
    """One item of `input`; None: it is nothing that the model reads."""
    kind = item.get("type", "message")
    if kind == "reasoning":
        return None
    if kind != "message":
        raise BadRequestError(
            f"{where}.type: this server reads messages only, not {str(kind)[:40]!r}",
            param=f"{where}.type",
        )
    role = item.get("role")
    if role not in INPUT_ROLES:
        raise BadRequestError(
            f"{where}.role must be one of {', '.join(INPUT_ROLES)}", param=f"{where}.role"
        )
    return ChatMessage(role, _text(item.get("content"), f"{where}.content"))


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BadRequestError(f"{where} must be a text or a list of text parts", param=where)
    return "".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    field = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    text = part.get(field) if field is not None else None
    if not isinstance(text, str):
        raise BadRequestError(f"{where}: this server reads text parts only", param=where)
    return text


_EMPTY: tuple[Any, ...] = (None, [], {})
_NOT_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "background": (None, False),
    "context_management": _EMPTY,
    "conversation": (None,),
    "logprobs": (None, False),
    "max_completion_tokens": (None,),
    "max_tokens": (None,),
    "max_tool_calls": (None,),
    "messages": _EMPTY,
    "moderation": (None,),
    "n": (None, 1),
    "previous_response_id": (None,),
    "prompt": (None,),
    "truncation": (None, "disabled"),
}
_NO_EFFECT = frozenset(
    {
        "parallel_tool_calls",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "stream_options",
        "text",
    }
)
"""Accepted, once `_check_nested` has looked into those that are objects."""


@cache
def unsupported_fields() -> dict[str, tuple[Any, ...]]:
    """Fields that this server knows and does not implement here, each with the values that change
    nothing."""
    return {**schemas.unsupported_fields(ResponseBody), **_NOT_SUPPORTED}


@cache
def fields_without_effect() -> frozenset[str]:
    """Fields that are accepted and change nothing."""
    return schemas.fields_without_effect(ResponseBody) | _NO_EFFECT


NEUTRAL_NESTED: dict[str, dict[str, tuple[Any, ...]]] = {
    "reasoning": {"effort": (None,)},
    "text": {"format": (None, {"type": "text"}), "verbosity": (None,)},
}
"""What objects among the fields may hold without changing the answer."""


def parse_response_body(raw: Mapping[str, Any]) -> tuple[ResponseBody, Sequence[str]]:
    """The checked body, and the names of fields that were ignored (safe in a header).

    Raises BadRequestError naming the field."""
    try:
        body = msgspec.convert(raw, ResponseBody)
    except msgspec.ValidationError as error:
        raise told_validation(error) from None
    limit = body.max_output_tokens
    if limit is not None and not 1 <= limit <= MAX_MAX_TOKENS:
        raise BadRequestError(
            f"max_output_tokens must be from 1 to {MAX_MAX_TOKENS}, not {limit}",
            param="max_output_tokens",
        )
    most = SamplingParams.MAX_LOGPROBS
    if body.top_logprobs is not None and not 0 <= body.top_logprobs <= most:
        raise BadRequestError(
            f"top_logprobs must be from 0 to {most}, not {body.top_logprobs}", param="top_logprobs"
        )
    check_metadata(body.metadata or {})
    for field, neutral in unsupported_fields().items():
        if field in raw and not schemas.is_among(raw[field], neutral):
            hint = "; use max_output_tokens" if field.startswith("max_") else ""
            raise BadRequestError(f"{field} is not supported by this server{hint}", param=field)
    _check_nested(raw)
    body.template()
    return body, ignored_names(raw, _known_fields())


def _check_nested(raw: Mapping[str, Any]) -> None:
    for field, neutral in NEUTRAL_NESTED.items():
        value = raw.get(field)
        if value is None:
            continue
        if not isinstance(value, dict):
            raise BadRequestError(f"{field} must be an object", param=field)
        for name, values in neutral.items():
            if name in value and not schemas.is_among(value[name], values):
                path = f"{field}.{name}"
                raise BadRequestError(f"{path} is not supported by this server", param=path)


@cache
def _known_fields() -> frozenset[str]:
    read = {field.encode_name for field in msgspec.structs.fields(ResponseBody)}
    return frozenset(read | fields_without_effect() | unsupported_fields().keys())
