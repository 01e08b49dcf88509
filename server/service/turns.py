"""`Turn`: a checked message of a conversation, as chat templates read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from server.service.errors import BadRequestError
from server.service.messages import ChatMessage
from server.service.validation import refuse_nul

ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_DEPTH = 64
"""How deep the arguments of a call may be nested: templates and JSON walk them by recursion."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model has made; `arguments` are what its JSON says."""

    name: str
    arguments: dict[str, Any]
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """`content` is one text; None only beside `tool_calls`. `reasoning` is what the model thought
    before it answered."""

    role: str
    content: str | None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str | None = None

    def texts(self) -> Iterator[str]:
        """Every text that the caller wrote."""
        for text in (self.content, self.name, self.tool_call_id, self.reasoning):
            if text is not None:
                yield text
        for call in self.tool_calls:
            yield call.name
            if call.id is not None:
                yield call.id
            yield from _texts_in(call.arguments)


def to_turns(messages: Sequence[ChatMessage]) -> list[Turn]:
    """Checks messages and joins lists of text parts. Raises BadRequestError naming the field."""
    if not messages:
        raise BadRequestError("messages must hold at least one message", param="messages")
    return [_to_turn(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _to_turn(message: ChatMessage, where: str) -> Turn:
    role = message.role
    if role not in ROLES:
        raise BadRequestError(
            f"{where}.role must be one of {', '.join(ROLES)}", param=f"{where}.role"
        )
    if message.function_call is not None:
        raise BadRequestError(
            f"{where}.function_call is not supported by this server; use tool_calls",
            param=f"{where}.function_call",
        )
    is_answer = role == "assistant"
    calls = _to_calls(message.tool_calls or (), f"{where}.tool_calls", is_answer=is_answer)
    turn = Turn(
        "system" if role == "developer" else role,
        None if message.content is None else _text_of(message.content, f"{where}.content"),
        message.name,
        calls,
        message.tool_call_id if role == "tool" else None,
        message.reasoning_content if is_answer else None,
    )
    if turn.content is None and not calls:
        raise BadRequestError(f"{where}.content is missing", param=f"{where}.content")
    refuse_nul(turn.content or "", f"{where}.content")
    refuse_nul(turn.name or "", f"{where}.name")
    for text in turn.texts():
        refuse_nul(text, where)
    return turn


def _text_of(content: str | list[dict[str, Any]], where: str) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for index, part in enumerate(content):
        text = part.get("text")
        if part.get("type") != "text" or not isinstance(text, str):
            raise BadRequestError(
                f"{where}[{index}]: this server reads text parts only", param=f"{where}[{index}]"
            )
        texts.append(text)
    return "".join(texts)


def _to_calls(
    calls: Sequence[dict[str, Any]], where: str, *, is_answer: bool
) -> tuple[ToolCall, ...]:
    if calls and not is_answer:
        raise BadRequestError(f"{where} belongs to messages of the assistant", param=where)
    return tuple(_to_call(call, f"{where}[{index}]") for index, call in enumerate(calls))


def _to_call(call: dict[str, Any], where: str) -> ToolCall:
    function, call_id = call.get("function"), call.get("id")
    if call.get("type", "function") != "function" or not isinstance(function, dict):
        raise BadRequestError(f"{where} must be a call of a function", param=where)
    if not isinstance(call_id, str | None):
        raise BadRequestError(f"{where}.id must be a text", param=f"{where}.id")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise BadRequestError(
            f"{where}.function.name must be a text", param=f"{where}.function.name"
        )
    return ToolCall(name, _arguments(function.get("arguments"), where), call_id)


def _arguments(value: Any, where: str) -> dict[str, Any]:
    param = f"{where}.function.arguments"
    try:
        # No arguments at all are written in several ways.
        found = msgspec.json.decode(value or "{}") if isinstance(value, str | None) else value
        if isinstance(found, dict):
            list(_texts_in(found))  # nested no deeper than anybody can follow
            return found
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    raise BadRequestError(f"{param} must be the JSON of an object", param=param)


def _texts_in(value: Any, depth: int = 0) -> Iterator[str]:
    """Raises RecursionError for a value nested deeper than `MAX_DEPTH`."""
    if depth > MAX_DEPTH:
        raise RecursionError
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _texts_in(item, depth + 1)
        case dict():
            for key, item in value.items():
                yield key
                yield from _texts_in(item, depth + 1)
