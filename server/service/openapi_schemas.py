"""The OpenAPI document's schemas: made from the structs that read the bodies, with the bounds that
are checked behind them.

Struct types say which fields there are and of which kind; how far a value may go stands in
`ServiceLimits` and `SamplingParams`, and is added here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from engine.api import SamplingParams
from server.service import (
    openapi_replies,
    request_terms,
    response_schemas,
    schemas,
    template_options,
    tokenize,
    validation,
)
from server.service.limits import ServiceLimits
from server.service.openapi_messages import (
    CHAT_MESSAGE,
    INPUT_ITEM,
    NULL,
    TEXT,
    TEXT_OR_NULL,
    Schema,
)
from server.service.options import MAX_MAX_TOKENS

REF = "#/components/schemas/{name}"

BODIES: tuple[type[msgspec.Struct], ...] = (
    schemas.ChatCompletionBody,
    schemas.CompletionBody,
    response_schemas.ResponseBody,
    tokenize.TokenizeBody,
    tokenize.DetokenizeBody,
)


def components(limits: ServiceLimits, model: str, vocab_size: int) -> dict[str, Schema]:
    """`components.schemas` of a server with these limits that serves `model`."""
    _, found = msgspec.json.schema_components(
        [*BODIES, *openapi_replies.BY_ROUTE], ref_template=REF
    )
    bounds = _bounds(limits, vocab_size)
    for kind in BODIES:
        properties = found[kind.__name__]["properties"]
        for name, schema in properties.items():
            _bound(schema, bounds.get(name, {}))
        properties["model"] = {"enum": [model, None], "default": None}
        found[kind.__name__]["additionalProperties"] = True
    for kind in (schemas.ChatCompletionBody, schemas.CompletionBody):
        _add_known(
            found[kind.__name__],
            schemas.unsupported_fields(kind),
            schemas.fields_without_effect(kind),
        )
    _add_known(
        found["ResponseBody"],
        response_schemas.unsupported_fields(),
        response_schemas.fields_without_effect(),
    )
    found["ResponseBody"]["properties"] |= {
        "input": {"anyOf": [TEXT, {"type": "array", "items": INPUT_ITEM, "minItems": 1}]},
        **{
            name: _object_or_null({field: _enum(values) for field, values in fields.items()})
            for name, fields in response_schemas.NEUTRAL_NESTED.items()
        },
    }
    found["ResponseBody"]["properties"]["instructions"] = TEXT_OR_NULL
    found["CompletionBody"]["properties"]["prompt"] = _prompt(limits, vocab_size)
    found["ChatCompletionBody"]["properties"]["messages"]["minItems"] = 1
    found["ChatMessage"] = CHAT_MESSAGE
    found["TokenizeBody"]["anyOf"] = [
        {"required": [one], "properties": {one: {"not": NULL}, other: NULL}}
        for one, other in (("prompt", "messages"), ("messages", "prompt"))
    ]
    token_ids = found["DetokenizeBody"]["properties"]["tokens"]
    token_ids |= {"items": _token_id(vocab_size), "maxItems": tokenize.MAX_TOKENS}
    return found


def _prompt(limits: ServiceLimits, vocab_size: int) -> Schema:
    """A text, token ids, or several of one of them."""
    text = {**TEXT, "minLength": 1}
    ids = {"type": "array", "items": _token_id(vocab_size), "minItems": 1}
    several = {"type": "array", "minItems": 1, "maxItems": limits.max_prompts}
    return {"anyOf": [text, ids, {**several, "items": text}, {**several, "items": ids}]}


def _token_id(vocab_size: int) -> Schema:
    return {"type": "integer", "minimum": 0, "maximum": vocab_size - 1}


def _bounds(limits: ServiceLimits, vocab_size: int) -> dict[str, dict[str, Schema]]:
    """For each field and each kind of value that it takes: what is checked of it."""
    most_logprobs = SamplingParams.MAX_LOGPROBS
    tokens = {"integer": {"minimum": 1, "maximum": MAX_MAX_TOKENS}}
    stop = {"minLength": 1, "maxLength": limits.max_stop_chars}
    penalty = {"number": {"minimum": -2, "maximum": 2}}
    return {
        "max_tokens": tokens,
        "max_completion_tokens": tokens,
        "max_output_tokens": tokens,
        "min_tokens": {"integer": {"minimum": 0, "maximum": MAX_MAX_TOKENS}},
        "temperature": {"number": {"minimum": 0, "maximum": 2}},
        "top_p": {"number": {"exclusiveMinimum": 0, "maximum": 1}},
        "min_p": {"number": {"minimum": 0, "maximum": 1}},
        "top_k": {"integer": {"minimum": -1, "maximum": MAX_MAX_TOKENS}},
        "seed": {"integer": {"minimum": -(2**63), "maximum": 2**64 - 1}},
        "presence_penalty": penalty,
        "frequency_penalty": penalty,
        "repetition_penalty": {"number": {"exclusiveMinimum": 0, "maximum": 100}},
        "stop": {
            "string": stop,
            "array": {"items": {"type": "string", **stop}, "maxItems": limits.max_stops},
        },
        "stop_token_ids": {
            "array": {
                "items": _token_id(vocab_size),
                "maxItems": limits.max_stops,
            }
        },
        "logit_bias": {
            "object": {
                "propertyNames": {"pattern": "^[0-9]{1,9}$"},
                "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
                "maxProperties": limits.max_logit_biases,
            }
        },
        "n": {"integer": {"minimum": 1, "maximum": limits.max_choices}},
        "logprobs": {"integer": {"minimum": 0, "maximum": most_logprobs}},
        "top_logprobs": {"integer": {"minimum": 0, "maximum": most_logprobs}},
        "timeout": {"number": {"exclusiveMinimum": 0, "maximum": limits.request_timeout_s}},
        "priority": {"string": {"enum": list(request_terms.PRIORITIES)}},
        "service_tier": {"string": {"enum": list(request_terms.TIERS)}},
        "chat_template_kwargs": {
            "object": {
                "propertyNames": {"enum": list(template_options.VARIABLES)},
                "additionalProperties": {"type": ["boolean", "number", "string", "null"]},
            }
        },
        "metadata": {
            "object": {
                "propertyNames": {"maxLength": validation.MAX_METADATA_KEY_CHARS},
                "additionalProperties": {
                    "type": "string",
                    "maxLength": validation.MAX_METADATA_VALUE_CHARS,
                },
                "maxProperties": validation.MAX_METADATA,
            }
        },
    }


def _bound(schema: Schema, by_type: Mapping[str, Schema]) -> None:
    """Adds to each of the schema's alternatives what holds for its type."""
    for one in schema.get("anyOf", [schema]):
        one.update(by_type.get(one.get("type", ""), {}))


def _add_known(
    schema: Schema, refused: Mapping[str, tuple[Any, ...]], ignored: Iterable[str]
) -> None:
    """Fields of other servers: those that may only have a neutral value, and those that may have
    any."""
    properties = schema["properties"]
    for name, values in refused.items():
        properties[name] = {**_enum(values), "description": "Not supported."}
    for name in sorted(ignored):
        properties.setdefault(name, {"description": "Accepted, without effect."})


def _enum(values: Iterable[Any]) -> Schema:
    return {"enum": list(values)}


def _object_or_null(properties: Schema) -> Schema:
    return {"anyOf": [{"type": "object", "properties": properties}, NULL]}
