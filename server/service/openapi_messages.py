"""Schemas of the messages that bodies hold: what is checked of them behind their structs."""

from __future__ import annotations

from typing import Any

from server.service.response_schemas import INPUT_ROLES
from server.service.turns import ROLES

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "pattern": "^[^\\u0000]*$"}
_TEXT_PART: Schema = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": TEXT},
    "required": ["type", "text"],
}
NULL: Schema = {"type": "null"}
TEXT_OR_NULL: Schema = {"anyOf": [TEXT, NULL]}
_STRING_OR_NULL: Schema = {"type": ["string", "null"]}
_CONTENT: list[Schema] = [TEXT, {"type": "array", "items": _TEXT_PART}]
_TOOL_CALL: Schema = {
    "type": "object",
    "properties": {
        "type": {"const": "function"},
        "id": TEXT_OR_NULL,
        "function": {
            "type": "object",
            "properties": {
                "name": {**TEXT, "minLength": 1},
                "arguments": {
                    "description": "An object, or its JSON.",
                    "anyOf": [{"type": "object"}, {"type": "string"}, NULL],
                },
            },
            "required": ["name"],
        },
    },
    "required": ["function"],
}
_BESIDE_CONTENT: Schema = {
    "name": TEXT_OR_NULL,
    "tool_call_id": _STRING_OR_NULL,
    "reasoning_content": _STRING_OR_NULL,
    "function_call": {"enum": [None]},
}
CHAT_MESSAGE: Schema = {
    "description": "A turn of the conversation. Only one with `tool_calls` may have no content.",
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "role": {"enum": list(ROLES)},
                "content": {"anyOf": _CONTENT},
                "tool_calls": {"enum": [None, []]},
                **_BESIDE_CONTENT,
            },
            "required": ["role", "content"],
        },
        {
            "type": "object",
            "properties": {
                "role": {"const": "assistant"},
                "content": {"anyOf": [*_CONTENT, NULL]},
                "tool_calls": {"type": "array", "items": _TOOL_CALL, "minItems": 1},
                **_BESIDE_CONTENT,
            },
            "required": ["role", "tool_calls"],
        },
    ],
}
_INPUT_PARTS: Schema = {
    "type": "array",
    "items": {
        "anyOf": [
            {
                "type": "object",
                "properties": {"type": {"enum": list(kinds)}, field: TEXT},
                "required": ["type", field],
            }
            for field, kinds in (
                ("text", ("input_text", "output_text", "text")),
                ("refusal", ("refusal",)),
            )
        ]
    },
}
INPUT_ITEM: Schema = {
    "description": "A message; or the reasoning of an earlier answer, which is passed over.",
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "type": {"const": "message"},
                "role": {"enum": list(INPUT_ROLES)},
                "content": {"anyOf": [TEXT, _INPUT_PARTS]},
            },
            "required": ["role", "content"],
        },
        {
            "type": "object",
            "properties": {"type": {"const": "reasoning"}},
            "required": ["type"],
        },
    ],
}
