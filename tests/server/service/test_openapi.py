"""/openapi.json is true: it has the routes that exist, and the bounds that are checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema_rs
import pytest

from server.service import schemas
from server.service.errors import BadRequestError
from server.service.limits import ServiceLimits
from server.service.openapi import describe
from server.service.response_schemas import parse_response_body
from server.service.routes import OPEN, ServiceRoutes, create_routes
from tests.server.service.harness import MODEL, Json, Server, parse_sse, serving

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
LIMITS = ServiceLimits()
DOCUMENT = describe(LIMITS, MODEL, 260)
SCHEMAS: dict[str, Json] = DOCUMENT["components"]["schemas"]


def check_chat(fields: Json) -> None:
    messages = [{"role": "user", "content": "hi"}]
    raw = {"messages": messages, **fields}
    body, _ = schemas.parse(raw, schemas.ChatCompletionBody, LIMITS)
    body.options(body.max_completion_tokens or body.max_tokens).to_params(LIMITS)


def check_text(fields: Json) -> None:
    body, _ = schemas.parse({"prompt": "hi", **fields}, schemas.CompletionBody, LIMITS)
    body.prompts(LIMITS.max_prompts)
    body.options(body.max_tokens).to_params(LIMITS)


def check_response(fields: Json) -> None:
    body, _ = parse_response_body({"input": "hi", **fields})
    body.messages()
    body.options().to_params(LIMITS)


CHECKS: dict[str, Callable[[Json], None]] = {
    "ChatCompletionBody": check_chat,
    "CompletionBody": check_text,
    "ResponseBody": check_response,
}
NEEDS: dict[str, Json] = {"top_logprobs": {"logprobs": True}}
"""Fields that a bound's field asks for, where the body has them."""
ELSEWHERE = {"timeout", "best_of", "prompt"}
"""Checked against the clock, against another field, and by the tokenizer."""


def bounded() -> Iterator[Any]:
    """(body, field, a value at a bound, the value behind it) for every number that is bounded."""
    for name, check in CHECKS.items():
        for field, schema in SCHEMAS[name]["properties"].items():
            if field in ELSEWHERE:
                continue
            for one in schema.get("anyOf", [schema]):
                is_int = one.get("type") == "integer"
                for bound, sign in (("minimum", -1), ("maximum", 1)):
                    if bound not in one:
                        continue
                    last = one[bound]
                    beyond = last + sign if is_int else math.nextafter(last, sign * math.inf)
                    yield pytest.param(check, field, last, beyond, id=f"{name}.{field} {bound}")
                if "exclusiveMinimum" in one:
                    last = one["exclusiveMinimum"]
                    first = math.nextafter(last, math.inf)
                    yield pytest.param(check, field, first, last, id=f"{name}.{field} exclusive")
                for bound, sign in (("minLength", -1), ("maxLength", 1)):
                    if bound in one:
                        texts = ["x" * one[bound], "x" * (one[bound] + sign)]
                        yield pytest.param(check, field, *texts, id=f"{name}.{field} {bound}")
                if one.get("type") == "array" and "maxItems" in one:
                    item = {"string": "x", "integer": 1}.get(one["items"].get("type"))
                    if item is not None:
                        lists = [[item] * one["maxItems"], [item] * (one["maxItems"] + 1)]
                        yield pytest.param(check, field, *lists, id=f"{name}.{field} items")


@pytest.mark.parametrize(("check", "field", "within", "beyond"), list(bounded()))
def test_the_bounds_are_those_that_are_checked(
    check: Callable[[Json], None], field: str, within: Any, beyond: Any
) -> None:
    needs = NEEDS.get(field, {}) if check is check_chat else {}
    if field == "min_tokens":
        needs = {"max_output_tokens" if check is check_response else "max_tokens": 2**31 - 1}
    check({**needs, field: within})
    with pytest.raises(BadRequestError) as refused:
        check({**needs, field: beyond})
    assert refused.value.param == field


@pytest.mark.parametrize(
    ("name", "field"),
    [
        (name, field)
        for name in CHECKS
        for field, schema in SCHEMAS[name]["properties"].items()
        if schema.get("description") == "Not supported."
    ],
)
def test_fields_that_are_not_supported_take_their_neutral_values_only(
    name: str, field: str
) -> None:
    for value in SCHEMAS[name]["properties"][field]["enum"]:
        CHECKS[name]({field: value})
    with pytest.raises(BadRequestError) as refused:
        CHECKS[name]({field: "something else"})
    assert refused.value.param == field


async def test_every_route_is_described_and_no_other(server: Server) -> None:
    app = create_routes(server.service)
    assert isinstance(app, ServiceRoutes)
    served = {(route.pattern, route.method.lower()) for route in app.routes}
    paths = (await server.http.get("/openapi.json")).json()["paths"]
    assert served == {(path, method) for path, methods in paths.items() for method in methods}
    open_paths = {route.pattern for route in app.routes if route.access == OPEN}
    assert open_paths == {
        path
        for path, methods in paths.items()
        for operation in methods.values()
        if operation.get("security") == []
    }


async def test_the_document_is_whole(server: Server) -> None:
    """Every reference in it leads somewhere, and every schema is one."""
    document = (await server.http.get("/openapi.json")).json()

    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for item in value.values():
                yield from references(item)
        elif isinstance(value, list):
            for item in value:
                yield from references(item)

    found = set(references(document))
    assert len(found) > 10
    for reference in found:
        place: Any = document
        for key in reference.removeprefix("#/").split("/"):
            place = place[key]
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate({**schema, "$schema": DIALECT})


def is_valid(name: str, value: Any) -> bool:
    schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}}
    return bool(jsonschema_rs.Draft202012Validator(schema).is_valid(value))


async def test_replies_are_as_described() -> None:
    """Those that a fuzzer hardly meets: several choices, a lowered limit, an error."""
    async with serving(max_model_len=64) as server:
        fields = {"n": 2, "logprobs": True, "top_logprobs": 2, "max_tokens": 5000}
        whole = (await server.chat("hi", **fields)).json()
        assert whole["max_tokens_lowered"] is True
        assert is_valid("ChatCompletion", whole)
        assert not is_valid("ChatCompletion", {**whole, "choices": [{}]})
        usage = {"include_usage": True}
        chunks = await server.stream("hi", stream_options=usage, **fields)
        assert all(is_valid("ChatCompletionChunk", chunk) for chunk in chunks)
        body = {"prompt": ["a", "b"], "logprobs": 1, "max_tokens": 5000}
        reply = await server.http.post("/v1/completions", json=body)
        assert is_valid("TextCompletion", reply.json())
        reply = await server.http.post("/v1/completions", json={**body, "stream": True})
        assert all(is_valid("TextCompletionChunk", chunk) for chunk in parse_sse(reply.text))
        body = {"input": "hi", "max_output_tokens": 5000}
        reply = await server.http.post("/v1/responses", json=body)
        assert is_valid("Response", reply.json())
        assert not is_valid("Response", {**reply.json(), "status": "done"})
        refused = await server.chat("hi", temperature=9)
        assert is_valid("Error", refused.json())
        for path, name in (
            ("/v1/models", "ModelList"),
            (f"/v1/models/{MODEL}", "Model"),
            ("/health", "Health"),
            ("/ready", "Readiness"),
        ):
            assert is_valid(name, (await server.http.get(path)).json())
