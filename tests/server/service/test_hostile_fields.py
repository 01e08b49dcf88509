"""Every field of every body against values that it was not made for: an answer or a refusal that
is the caller's, never a fault of ours."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from engine.api import Script
from server.service.schemas import ChatCompletionBody, CompletionBody
from server.service.tokenize import DetokenizeBody, TokenizeBody
from tests.server.service.harness import Json, serving
from tests.server.service.played_cases import strict_json

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

MESSAGES = [{"role": "user", "content": "hi"}]
BODIES: dict[str, tuple[type[msgspec.Struct], Json]] = {
    "/v1/chat/completions": (ChatCompletionBody, {"messages": MESSAGES, "max_tokens": 2}),
    "/v1/completions": (CompletionBody, {"prompt": "hi", "max_tokens": 2}),
    "/tokenize": (TokenizeBody, {"prompt": "hi"}),
    "/detokenize": (DetokenizeBody, {"tokens": [104]}),
}
# As JSON, some of which no JSON library would write.
HOSTILE = [
    "NaN", "-Infinity", "1e400", "-1e400", "1e308", "1e-320", "true", "false", "null", '""',
    '"NaN"', '"1e400"', '"\\u0000"', '"\\ud800"', '"\\udfff\\ud800"', '"<|im_end|>"', '"\\u2028"',
    "[]", "[[]]", "[null]", '["a", 1]', "[1, [2]]", "{}", '{"a": null}', '{"": {"": []}}',
    str(2**70), str(-(2**70)), str(2**63), "1" * 5000, "-1", "0", "-0.0", "0.5",
    "[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900, "\xff",
]  # fmt: skip
UNREAD = ["tools", "response_format", "chat_template", "store", "never_heard_of"]


@pytest.mark.parametrize("path", list(BODIES))
async def test_no_value_is_our_fault(path: str) -> None:
    kind, body = BODIES[path]
    fields = [field.encode_name for field in msgspec.structs.fields(kind)]
    assert set(body) <= set(fields)
    async with serving(Script(answer=lambda _: "fine")) as server:
        for field in [*fields, *UNREAD]:
            for value in HOSTILE:
                sent = _body_with(body, field, value)
                reply = await server.http.post(path, content=sent)
                assert reply.status_code in (200, 400, 404), (field, value, reply.text)
                if reply.headers["content-type"] == "application/json":
                    _check(strict_json(reply.text), field, value, reply.status_code)
        assert (await server.http.get("/health")).status_code == 200
        await server.until_idle()


def _body_with(body: Json, field: str, value: str) -> bytes:
    others = {name: item for name, item in body.items() if name != field}
    text = json.dumps({**others, field: "@"})
    return text.replace('"@"', value).encode("latin-1")


def _check(reply: Json, field: str, value: str, status: int) -> None:
    if status == 200:
        return
    error = reply["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    param = error["param"] or ""
    # A body that is no JSON has no fields.
    assert param.startswith((field, "prompt", "messages")) or "JSON" in error["message"], (
        field,
        value,
        error,
    )


@pytest.mark.parametrize(
    ("role", "member"),
    [
        ("user", "role"),
        ("user", "content"),
        ("user", "name"),
        ("assistant", "content"),
        ("assistant", "tool_calls"),
        ("tool", "tool_call_id"),
    ],
)
async def test_no_member_of_a_message_is_our_fault(role: str, member: str) -> None:
    async with serving(Script(answer=lambda _: "fine")) as server:
        for value in HOSTILE:
            message: dict[str, Any] = {"role": role, "content": "a"}
            body = _body_with(message, member, value)
            sent = b'{"max_tokens":1,"messages":[%b]}' % body
            reply = await server.http.post("/v1/chat/completions", content=sent)
            assert reply.status_code in (200, 400), (member, value, reply.text)
            if reply.status_code == 400:
                _check(reply.json(), "messages", value, 400)
