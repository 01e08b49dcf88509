"""POST /v1/responses: input, reply and events, the same streamed and whole."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from engine.api import Script
from tests.server.service.harness import MODEL, Json, Server, eventually, serving
from tests.server.service.response_stream import events_of

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


async def respond(server: Server, input: Any = "hi", /, **fields: Any) -> httpx.Response:
    return await server.http.post("/v1/responses", json={"input": input, **fields})


async def whole(server: Server, input: Any = "hi", /, **fields: Any) -> Json:
    reply = await respond(server, input, **fields)
    assert reply.status_code == 200, reply.text
    found: Json = reply.json()
    return found


async def streamed(server: Server, input: Any = "hi", /, **fields: Any) -> list[Json]:
    reply = await respond(server, input, stream=True, **fields)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    return events_of(reply.text)


def without_ids(response: Json) -> Json:
    """A response as it is told to anybody who asks the same, whatever the cache holds then."""
    output = [{**item, "id": item["id"][:3]} for item in response["output"]]
    usage = {**response["usage"], "input_tokens_details": None}
    return {**response, "id": None, "created_at": None, "output": output, "usage": usage}


def text_of(response: Json) -> str:
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


@pytest.mark.parametrize(
    ("fields", "status", "reason", "detail", "text"),
    [
        ({}, "completed", None, {"type": "eos"}, "The answer is 42."),
        (
            {"max_output_tokens": 2},
            "incomplete",
            "max_output_tokens",
            {"type": "max_tokens"},
            "The answ",
        ),
        (
            {"stop": [" is"]},
            "completed",
            None,
            {"type": "stop_string", "matched": " is"},
            "The answer",
        ),
        ({"top_logprobs": 1}, "completed", None, {"type": "eos"}, "The answer is 42."),
        (
            {"include": ["message.output_text.logprobs"], "metadata": {"a": "b"}, "user": "u"},
            "completed",
            None,
            {"type": "eos"},
            "The answer is 42.",
        ),
    ],
    ids=["eos", "length", "stop", "top logprobs", "logprobs"],
)
async def test_whole_and_streamed_tell_the_same(
    fields: Json, status: str, reason: str | None, detail: Json, text: str
) -> None:
    async with serving(Script(answer=lambda _: "The answer is 42.")) as server:
        one = await whole(server, **fields)
        events = await streamed(server, **fields)
    assert without_ids(events[-1]["response"]) == without_ids(one)
    assert events[-1]["type"] == f"response.{status}"
    assert one["status"] == status
    assert one["incomplete_details"] == (None if reason is None else {"reason": reason})
    assert one["finish_detail"] == detail
    assert one["output"][0]["status"] == status
    assert text_of(one) == text
    assert "".join(event["delta"] for event in events if "delta" in event) == text
    assert one["usage"]["total_tokens"] == (
        one["usage"]["input_tokens"] + one["usage"]["output_tokens"]
    )
    wants_logprobs = "top_logprobs" in fields or "include" in fields
    told = one["output"][0]["content"][0]["logprobs"]
    assert "".join(entry["token"] for entry in told) == (text if wants_logprobs else "")
    in_deltas = [entry for event in events if "delta" in event for entry in event["logprobs"]]
    assert in_deltas == told


async def test_the_order_of_events(server: Server) -> None:
    events = await streamed(server)
    names = [event["type"].removeprefix("response.") for event in events]
    deltas = names.count("output_text.delta")
    assert deltas >= 1
    assert names == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * deltas,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert events[0]["response"]["status"] == "in_progress"
    assert events[0]["response"]["output"] == []
    response = events[-1]["response"]
    assert events[-2]["item"] == response["output"][0]
    assert {event["item_id"] for event in events if "item_id" in event} == {
        response["output"][0]["id"]
    }


async def test_line_separators_do_not_split_events() -> None:
    text = "one\u2028two\u2029three\u0085four\r\nfive"
    async with serving(Script(answer=lambda _: text)) as server:
        events = await streamed(server)
    assert text_of(events[-1]["response"]) == text


async def test_an_empty_answer_is_an_empty_message() -> None:
    async with serving(Script(answer=lambda _: "")) as server:
        one = await whole(server)
        events = await streamed(server)
    assert [part["text"] for part in one["output"][0]["content"]] == [""]
    assert without_ids(events[-1]["response"]) == without_ids(one)


async def test_input_is_read_like_a_chat_s_messages() -> None:
    prompts: list[str] = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        return "ok"

    items = [
        {"role": "developer", "content": "Be short."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [
                {"type": "output_text", "text": "b", "annotations": []},
                {"type": "refusal", "refusal": "c"},
            ],
        },
        {"role": "user", "content": "d"},
    ]
    messages = [
        {"role": "system", "content": "You are a teacher."},
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "bc"},
        {"role": "user", "content": "d"},
    ]
    async with serving(Script(answer=answer)) as server:
        await whole(server, items, instructions="You are a teacher.")
        await server.http.post("/v1/chat/completions", json={"messages": messages})
        await whole(server, "hi")
        await server.chat("hi")
    assert prompts[0] == prompts[1]
    assert prompts[2] == prompts[3]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"input": "a\0b"}, "input"),
        ({"instructions": "a\0b"}, "input"),
        ({"timeout": 0}, "timeout"),
        ({"priority": "high"}, "priority"),
        ({"service_tier": "gold"}, "service_tier"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
    ],
    ids=str,
)
async def test_a_refusal_is_json_even_of_a_stream(server: Server, fields: Json, param: str) -> None:
    body = {"input": "hi", "stream": True, **fields}
    reply = await server.http.post("/v1/responses", json=body)
    assert reply.status_code == 400
    assert reply.headers["content-type"] == "application/json"
    assert reply.json()["error"]["param"] == param


async def test_fields_that_change_nothing_are_accepted(server: Server) -> None:
    reply = await respond(
        server,
        model=MODEL,
        background=False,
        include=["reasoning.encrypted_content"],
        parallel_tool_calls=False,
        previous_response_id=None,
        reasoning={"effort": None, "summary": "auto"},
        service_tier="auto",
        store=True,
        stream_options={"include_obfuscation": False},
        text={"format": {"type": "text"}},
        tool_choice="auto",
        tools=[],
        truncation="disabled",
        strange=1,
    )
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-lectern-ignored"] == "strange"
    told = reply.json()
    assert told["store"] is False
    assert told["output"][0]["content"][0]["logprobs"] == []


async def test_another_model_is_not_found(server: Server) -> None:
    reply = await respond(server, model="gpt-6")
    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "model_not_found"


async def test_a_lowered_limit_is_told_from_the_start() -> None:
    script = Script(answer=lambda _: "x" * 1000, token_chars=1)
    async with serving(script, max_model_len=64) as server:
        one = await whole(server, max_output_tokens=500)
        events = await streamed(server, max_output_tokens=500)
    room = 64 - one["usage"]["input_tokens"]
    for response in (one, events[0]["response"], events[-1]["response"]):
        assert response["max_tokens_lowered"] is True
        assert response["max_output_tokens"] == room
    assert one["status"] == "incomplete"
    assert one["finish_detail"] == {"type": "context_window"}
    assert one["usage"]["output_tokens"] == room


async def test_a_prompt_beyond_the_window_is_refused_before_the_stream() -> None:
    async with serving(max_model_len=64) as server:
        reply = await respond(server, "x" * 200, stream=True)
    assert reply.status_code == 400
    assert reply.headers["content-type"] == "application/json"
    assert reply.json()["error"]["code"] == "context_length_exceeded"
    assert reply.json()["error"]["param"] == "input"


async def test_the_second_time_the_prompt_is_cached(server: Server) -> None:
    await whole(server, "word " * 40)
    again = await whole(server, "word " * 40)
    details = again["usage"]["input_tokens_details"]
    assert 0 < details["cached_tokens"] < again["usage"]["input_tokens"]


async def test_a_failed_engine_ends_the_stream_by_one_event() -> None:
    script = Script(answer=lambda _: "onetwothreefourfive", token_s=0.005, fail_after=3)
    async with serving(script) as server:
        events = await streamed(server)
        reply = await respond(server)
    failed = events[-1]["response"]
    assert events[-1]["type"] == "response.failed"
    assert failed["status"] == "failed"
    assert failed["error"]["code"] == "server_error"
    assert text_of(failed) == "".join(event["delta"] for event in events if "delta" in event)
    assert failed["output"][0]["status"] == "incomplete"
    assert reply.status_code == 500
    assert reply.json()["error"]["type"] == "server_error"


async def test_a_deadline_is_told_alike() -> None:
    script = Script(answer=lambda _: "word " * 1000, token_s=0.005)
    async with serving(script) as server:
        one = await whole(server, timeout=0.2)
        events = await streamed(server, timeout=0.2)
    for response in (one, events[-1]["response"]):
        assert response["status"] == "incomplete"
        assert response["incomplete_details"] == {"reason": "abort"}
        assert response["finish_detail"] == {"type": "deadline"}
        assert "word word".startswith(text_of(response)[:9])


async def test_a_shutdown_leaves_what_was_said() -> None:
    script = Script(answer=lambda _: "word " * 1000, token_s=0.005)
    async with serving(script) as server:
        asked = [
            asyncio.create_task(respond(server, stream=True)),
            asyncio.create_task(respond(server)),
        ]
        await eventually(lambda: server.engine.stats.num_running == 2)
        await server.service.shutdown(0)
        replies = [await task for task in asked]
    for response in (events_of(replies[0].text)[-1]["response"], replies[1].json()):
        assert response["status"] == "incomplete"
        assert response["incomplete_details"] == {"reason": "abort"}
        assert response["finish_detail"] == {"type": "shutdown"}


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_client_that_leaves_frees_the_engine(is_streamed: bool) -> None:
    script = Script(answer=lambda _: "word " * 1000, token_s=0.005)
    async with serving(script) as server:
        asked = asyncio.create_task(respond(server, stream=is_streamed))
        await eventually(lambda: server.engine.stats.num_running == 1)
        asked.cancel()
        await server.until_idle()
        with pytest.raises(asyncio.CancelledError):
            await asked


THINKING_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    "{% endif %}"
)


@pytest.mark.parametrize(
    ("fields", "items", "status", "detail"),
    [
        (
            {},
            [("reasoning", "completed", "Two and two."), ("message", "completed", "Four.")],
            "completed",
            {"type": "eos"},
        ),
        (
            {"max_output_tokens": 4},
            [("reasoning", "incomplete", "Two and t")],
            "incomplete",
            {"type": "max_tokens", "in": "reasoning"},
        ),
        (
            {"chat_template_kwargs": {"enable_thinking": False}},
            [("message", "completed", "Four.")],
            "completed",
            {"type": "eos"},
        ),
    ],
    ids=["whole", "cut while thinking", "switched off"],
)
async def test_a_model_that_thinks(
    fields: Json, items: list[tuple[str, str, str]], status: str, detail: Json
) -> None:
    def answer(prompt: str) -> str:
        return "Four." if prompt.endswith("</think>") else "<think>Two and two.</think>Four."

    async with serving(Script(answer=answer)) as server:
        server.engine.tokenizer.chat_template = THINKING_TEMPLATE  # type: ignore[misc]
        one = await whole(server, **fields)
        events = await streamed(server, **fields)
    assert [
        (item["type"], item["status"], "".join(part["text"] for part in item["content"]))
        for item in one["output"]
    ] == items
    assert one["status"] == status
    assert one["finish_detail"] == detail
    assert without_ids(events[-1]["response"]) == without_ids(one)
    thought = one["usage"]["output_tokens_details"]["reasoning_tokens"]
    assert (thought > 0) == (items[0][0] == "reasoning")
