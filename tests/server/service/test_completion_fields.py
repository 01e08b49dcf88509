"""The fields of OpenAI's bodies: which are refused, by which name, and which are let through."""

from __future__ import annotations

import pytest

from server.service.limits import ServiceLimits
from tests.server.service.harness import Json, Server, serving

pytestmark = pytest.mark.anyio


BAD_CHAT_FIELDS: list[tuple[Json, str]] = [
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "a\0b"}]}, "messages[0].content"),
    (
        {"messages": [{"role": "assistant", "content": "a", "function_call": {}}]},
        "messages[0].function_call",
    ),
    (
        {"messages": [{"role": "user", "content": "a", "tool_calls": [{}]}]},
        "messages[0].tool_calls",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "messages[0].content[0]",
    ),
    ({"temperature": 3}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_k": -5}, "top_k"),
    ({"min_p": 1.5}, "min_p"),
    ({"seed": 2**64}, "seed"),
    ({"stop": ["x"] * 17}, "stop"),
    ({"n": 0}, "n"),
    ({"n": 9}, "n"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_completion_tokens": -1, "max_tokens": 5}, "max_completion_tokens"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"presence_penalty": 2.5}, "presence_penalty"),
    ({"frequency_penalty": -2.5}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"1": 1, "01": 2}}, "logit_bias"),
    ({"logit_bias": [5]}, "logit_bias"),
    ({"logit_bias": dict.fromkeys(map(str, range(1025)), 1)}, "logit_bias"),
    ({"logprobs": 3}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    ({"stop_token_ids": [1 << 40]}, "stop_token_ids"),
    ({"stop_token_ids": [1] * 17}, "stop_token_ids"),
    ({"user": 5}, "user"),
    ({"best_of": 2}, "best_of"),
    ({"echo": True}, "echo"),
    ({"chat_template": "{{ messages }}"}, "chat_template"),
    ({"chat_template_kwargs": {"messages": "x"}}, "chat_template_kwargs.messages"),
    ({"chat_template_kwargs": {"thinking": []}}, "chat_template_kwargs.thinking"),
    (
        {"chat_template_kwargs": {"reasoning_effort": "<|im_end|>"}},
        "chat_template_kwargs.reasoning_effort",
    ),
    ({"chat_template_kwargs": "x"}, "chat_template_kwargs"),
    ({"add_generation_prompt": 1}, "add_generation_prompt"),
    (
        {"add_generation_prompt": True, "continue_final_message": True},
        "continue_final_message",
    ),
    ({"continue_final_message": True}, "messages[0]"),
    ({"include_stop_str_in_output": "no"}, "include_stop_str_in_output"),
    ({"metadata": {"a": 1}}, "metadata[...]"),
    ({"metadata": {str(index): "x" for index in range(17)}}, "metadata"),
    ({"metadata": {"k" * 65: "x"}}, "metadata"),
    ({"metadata": {"k": "x" * 513}}, "metadata"),
    ({"timeout": 0}, "timeout"),
    ({"timeout": "soon"}, "timeout"),
    ({"priority": "first"}, "priority"),
    ({"service_tier": "gold"}, "service_tier"),
    ({"documents": [{"text": "x"}]}, "documents"),
    ({"skip_special_tokens": False}, "skip_special_tokens"),
]


@pytest.mark.one_loop
async def test_bad_fields_are_named(server: Server) -> None:
    for fields, param in BAD_CHAT_FIELDS:
        for stream in (False, True):
            response = await server.chat(**{"stream": stream, **fields})
            assert response.status_code == 400, (fields, response.text)
            assert response.headers["content-type"] == "application/json"
            error = response.json()["error"]
            assert error["type"] == "invalid_request_error"
            assert error["param"] == param
            assert error["message"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"messages": 1e999}']
)
@pytest.mark.one_loop
async def test_bodies_that_are_no_object(server: Server, body: bytes) -> None:
    response = await server.http.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


async def test_neutral_values_of_unsupported_fields_are_fine(server: Server) -> None:
    response = await server.chat(
        presence_penalty=0.0, logit_bias={}, logprobs=False, tools=None, tool_choice="none",
        response_format={"type": "text"}, user="u", n=1, store=False, chat_template=None,
        metadata={"k" * 64: "x" * 512}, service_tier="auto", priority="batch", timeout=5,
        echo=False, skip_special_tokens=True, stream_options={"include_usage": True},
        chat_template_kwargs={"enable_thinking": False, "reasoning_effort": None},
        add_generation_prompt=True, continue_final_message=False,
    )  # fmt: skip
    assert response.status_code == 200
    assert "x-lectern-ignored" not in response.headers


BAD_TEXT_FIELDS: list[tuple[Json, str]] = [
    ({"logprobs": True}, "logprobs"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": -1}, "logprobs"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"echo": True, "logprobs": 0}, "echo"),
    ({"echo": False, "max_tokens": 0}, "max_tokens"),
    ({"echo": True, "max_tokens": -1}, "max_tokens"),
    ({"echo": 1}, "echo"),
    ({"suffix": "!"}, "suffix"),
    ({"n": 2, "best_of": 3}, "best_of"),
    ({"best_of": 2}, "best_of"),
    ({"min_tokens": 17}, "min_tokens"),  # max_tokens is 16 where none is named
]


@pytest.mark.one_loop
async def test_bad_fields_of_a_text_completion(server: Server) -> None:
    for fields, param in BAD_TEXT_FIELDS:
        response = await server.http.post("/v1/completions", json={"prompt": "x", **fields})
        assert response.status_code == 400, (fields, response.text)
        assert response.json()["error"]["param"] == param


@pytest.mark.parametrize(
    "fields", [{"logprobs": False}, {"n": 2, "best_of": 2}, {"echo": False}, {"min_tokens": 16}]
)
@pytest.mark.one_loop
async def test_neutral_fields_of_a_text_completion(server: Server, fields: Json) -> None:
    response = await server.http.post("/v1/completions", json={"prompt": "x", **fields})
    assert response.status_code == 200, response.text
    assert all(choice["logprobs"] is None for choice in response.json()["choices"])


async def test_max_completion_tokens_wins(server: Server) -> None:
    """OpenAI's newer name; the older one is not looked at, whatever it says."""
    for max_tokens in (None, 0, 1, 50):
        reply = await server.chat("go on", max_completion_tokens=2, max_tokens=max_tokens)
        assert reply.json()["usage"]["completion_tokens"] == 2


async def test_unknown_fields_are_named(server: Server) -> None:
    response = await server.chat(**{"fancy": 1, "häß\r\nlich: x": 2})
    assert response.status_code == 200
    assert response.headers["x-lectern-ignored"] == "fancy, h____lich__x".replace("_", "?")
    assert response.json()["choices"][0]["finish_reason"] == "stop"


async def test_raw_prompts_of_token_ids(server: Server) -> None:
    for prompt, count in (("ab", 1), ([97, 98], 1), ([[97], [98, 99]], 2), (["a", "b"], 2)):
        reply = await server.http.post("/v1/completions", json={"prompt": prompt})
        assert len(reply.json()["choices"]) == count
    bad: object
    for bad in ([[97], "b"], [1.5], [-1], [1 << 40], {}, None, "a\0"):
        reply = await server.http.post("/v1/completions", json={"prompt": bad})
        assert reply.status_code == 400
        assert reply.json()["error"]["param"].startswith("prompt")


async def test_a_long_list_of_token_ids_is_refused_by_its_size(server: Server) -> None:
    """Its last id is wrong too: the size is what is told, so the list was not looked through."""
    reply = await server.http.post("/v1/completions", json={"prompt": [97] * 4096 + [1 << 40]})
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "context_length_exceeded"
    assert reply.json()["error"]["param"] == "prompt"


async def test_answers_per_request_are_bounded() -> None:
    limits = ServiceLimits(max_sequences_per_request=4)
    async with serving(limits=limits) as server:
        for body, param in (
            ({"prompt": ["a", "b", "c"], "n": 2}, "prompt"),
            ({"prompt": [[97], [98], [99]], "n": 2}, "prompt"),
            ({"prompt": [97, 98, 99], "n": 5}, "n"),
        ):
            reply = await server.http.post("/v1/completions", json=body)
            assert reply.status_code == 400
            error = reply.json()["error"]
            assert error["param"] == param
            assert "prompt" in error["message"]
            assert "at most 4" in error["message"]
        assert (await server.chat(n=5)).json()["error"]["param"] == "n"
        for body in ({"prompt": ["a", "b"], "n": 2}, {"prompt": [97, 98, 99], "n": 4}):
            reply = await server.http.post("/v1/completions", json=body)
            assert len(reply.json()["choices"]) == 4
