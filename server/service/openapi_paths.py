"""The OpenAPI document's paths: what each route takes, and everything that it may reply."""

from __future__ import annotations

from server.service.openapi_messages import Schema
from server.service.openapi_schemas import REF

_HEADERS: Schema = {
    "X-Request-Id": {"schema": {"type": "string"}, "description": "Names the request in the log."}
}
_RETRY: Schema = {
    "Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds."}
}
_IGNORED: Schema = {
    "X-Lectern-Ignored": {
        "schema": {"type": "string"},
        "description": "Names of fields of the body that are not known here.",
    }
}


def _schema(name: str) -> Schema:
    return {"$ref": REF.format(name=name)}


def _json(description: str, name: str, headers: Schema | None = None) -> Schema:
    return {
        "description": description,
        "headers": {**_HEADERS, **(headers or {})},
        "content": {"application/json": {"schema": _schema(name)}},
    }


_ERRORS = {
    "400": ("BadRequest", "A field is missing, wrong, out of its range or not supported.", {}),
    "401": ("Unauthorized", "The server wants an API key that it knows.", {}),
    "403": ("Forbidden", "The key, or the page that asks, may not do this.", {}),
    "404": ("NotFound", "There is no such model, run or address.", {}),
    "405": ("MethodNotAllowed", "The address does not take this method.", {}),
    "408": ("SlowRequest", "The body did not arrive in time.", {}),
    "410": ("Gone", "The run is not known, or not any more.", {}),
    "413": ("TooLarge", "The body is too large.", {}),
    "429": ("TooMany", "Too much is running or waiting, of this caller's or in all.", _RETRY),
    "500": ("Failed", "The server's or the engine's fault.", {}),
    "503": ("Unavailable", "The model is loading, has failed, or the server goes away.", _RETRY),
}
"""Statuses, with the names that they have in `components.responses`."""

RESPONSES: dict[str, Schema] = {
    name: _json(description, "Error", headers) for name, description, headers in _ERRORS.values()
}


def _errors(*statuses: str) -> Schema:
    return {status: {"$ref": f"#/components/responses/{_ERRORS[status][0]}"} for status in statuses}


_POST_ERRORS = ("400", "401", "403", "404", "408", "413", "429", "500", "503")


def _post(summary: str, body: str, ok: Schema, examples: Schema) -> Schema:
    """A route that takes a body."""
    content = {
        "schema": _schema(body),
        "examples": {name: {"value": example} for name, example in examples.items()},
    }
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": {"application/json": content}},
            "responses": {"200": ok, **_errors(*_POST_ERRORS)},
        }
    }


def _answer(summary: str, body: str, whole: str, event: str, example: Schema) -> Schema:
    """A route that answers whole, or as server-sent events. `example` is a body for it."""
    ok = _json(
        f"The answer; with `stream` server-sent events, the data of each a `{event}`.",
        whole,
        _IGNORED,
    )
    ok["content"]["text/event-stream"] = {"schema": _event(event)}
    examples = {"whole": example, "streamed": {**example, "stream": True}}
    return _post(summary, body, ok, examples)


def _event(name: str) -> Schema:
    """One server-sent event: OpenAPI has no word for the stream before 3.2."""
    told = {"anyOf": [_schema(name), _schema("Error")]}
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": told}
    return {
        "type": "object",
        "properties": {"data": {"anyOf": [{"const": "[DONE]"}, data]}},
        "required": ["data"],
    }


def _parameter(name: str, place: str, schema: Schema, description: str) -> Schema:
    found = {"name": name, "in": place, "schema": schema, "description": description}
    return {**found, "required": True} if place == "path" else found


_QUESTION = "What is a KV cache?"

PATHS: dict[str, Schema] = {
    "/v1/chat/completions": _answer(
        "Answer a conversation",
        "ChatCompletionBody",
        "ChatCompletion",
        "ChatCompletionChunk",
        {
            "messages": [{"role": "user", "content": _QUESTION}],
            "logprobs": True,
            "top_logprobs": 1,
            "stream_options": {"include_usage": True},
        },
    ),
    "/v1/completions": _answer(
        "Continue a text",
        "CompletionBody",
        "TextCompletion",
        "TextCompletionChunk",
        {"prompt": _QUESTION, "max_tokens": 5, "logprobs": 1},
    ),
    "/v1/responses": _answer(
        "Answer a conversation, in the newer form",
        "ResponseBody",
        "Response",
        "ResponseEvent",
        {"input": _QUESTION, "instructions": "Be brief.", "top_logprobs": 1},
    ),
    "/tokenize": _post(
        "The tokens of a text or a conversation",
        "TokenizeBody",
        _json("The tokens, and how many the window holds.", "Tokenized"),
        {
            "text": {"prompt": _QUESTION, "return_token_strs": True},
            "conversation": {"messages": [{"role": "user", "content": _QUESTION}]},
        },
    ),
    "/detokenize": _post(
        "The text of tokens",
        "DetokenizeBody",
        _json("The text.", "Detokenized"),
        {"tokens": {"tokens": [72, 105]}},
    ),
    "/v1/models": {
        "get": {
            "summary": "The served model, as a list",
            "responses": {
                "200": _json("The one model.", "ModelList"),
                **_errors("401", "403", "500", "503"),
            },
        }
    },
    "/v1/models/{id}": {
        "get": {
            "summary": "The served model",
            "parameters": [
                _parameter("id", "path", {"type": "string", "minLength": 1}, "Its name.")
            ],
            "responses": {
                "200": _json("The model.", "Model"),
                **_errors("401", "403", "404", "500", "503"),
            },
        }
    },
    "/v1/runs/{run}/events": {
        "get": {
            "summary": "A run's events",
            "description": "As server-sent events; the id of each is its number in the run.",
            "parameters": [
                _parameter("run", "path", {"type": "string", "minLength": 1}, "The run."),
                _parameter(
                    "after_seq",
                    "query",
                    {"type": "integer", "minimum": 0, "default": 0},
                    "Tell only what came after this event.",
                ),
                _parameter(
                    "Last-Event-ID",
                    "header",
                    {"type": "integer", "minimum": 0},
                    "The same, as browsers say it; goes before `after_seq`.",
                ),
            ],
            "responses": {
                "200": {
                    "description": "The events up to the run's end.",
                    "headers": _HEADERS,
                    "content": {"text/event-stream": {"schema": {"type": "object"}}},
                },
                "204": {
                    "description": "The run has ended, and nothing comes any more.",
                    "headers": _HEADERS,
                },
                **_errors("401", "403", "404", "410", "500"),
            },
        }
    },
    "/health": {
        "get": {
            "security": [],
            "summary": "Whether the server is alive",
            "responses": {
                "200": _json("It is.", "Health"),
                "503": _json("Only a restart would help.", "Health"),
                **_errors("500"),
            },
        }
    },
    "/ready": {
        "get": {
            "security": [],
            "summary": "Whether the server takes new work",
            "responses": {
                "200": _json("It does.", "Readiness"),
                "503": _json("It does not.", "Readiness"),
                **_errors("500"),
            },
        }
    },
    "/metrics": {
        "get": {
            "summary": "Figures for Prometheus",
            "responses": {
                "200": {
                    "description": "In the text format.",
                    "headers": _HEADERS,
                    "content": {"text/plain": {"schema": {"type": "string"}}},
                },
                **_errors("401", "403", "500"),
            },
        }
    },
    "/openapi.json": {
        "get": {
            "security": [],
            "summary": "This document",
            "responses": {
                "200": {
                    "description": "OpenAPI 3.1.",
                    "headers": _HEADERS,
                    "content": {"application/json": {"schema": {"type": "object"}}},
                },
                **_errors("500", "503"),
            },
        }
    },
}
