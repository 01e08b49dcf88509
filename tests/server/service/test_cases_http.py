"""Cases of faults seen in other servers, played against a whole one over HTTP."""

from __future__ import annotations

import time

import pytest

from engine.api import Script
from tests.server.service.harness import (
    filled,
    parse_sse,
    scripted_answer,
    serving,
    text_of,
)
from tests.server.service.played_cases import play
from tests.support.cases import CASES, case

pytestmark = pytest.mark.anyio

TABLES = ["CTX-05", "STP-05", "TPL-01"]
SCRIPTED = ["DET-01", "DET-03", "FIN-01", "SSE-01", "STP-01", "STP-03", "STP-08"]


@pytest.mark.parametrize("name", TABLES)
async def test_each_request_is_answered_as_the_case_says(name: str) -> None:
    await play(name)


async def test_empty_prompts() -> None:
    """VAL-01: refused, but where the prompt's echo is all that is asked for."""
    replies = await play("VAL-01")
    assert [reply["error"]["param"] for reply in replies[:5]] == ["prompt"] * 5
    assert replies[5]["choices"][0]["text"] == "x"
    assert replies[5]["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize("field", ["max_completion_tokens", "max_output_tokens"])
async def test_senseless_lengths_by_their_other_names(field: str) -> None:
    """CTX-05."""
    async with serving() as server:
        for request in case("CTX-05")["input"]["requests"]:
            value = request["json"]["max_tokens"]
            if field == "max_completion_tokens":
                reply = await server.chat(**{field: value})
            else:
                reply = await server.http.post("/v1/responses", json={"input": "hi", field: value})
            assert reply.status_code == 400
            assert reply.json()["error"]["type"] == "invalid_request_error"
            assert reply.json()["error"]["param"] == field


async def test_prompt_beyond_the_window() -> None:
    """CTX-01: a plain 400 that names both sizes, streamed or not; a large max_tokens is lowered
    and the reply says so."""
    replies = await play("CTX-01", max_model_len=128)
    async with serving(max_model_len=128) as server:
        for stream in (False, True):
            refused = await server.chat("分页 " * 400, max_tokens=8, stream=stream)
            assert refused.status_code == 400
            assert refused.headers["content-type"] == "application/json"
    for reply in replies[:2]:
        assert "128" in reply["error"]["message"]
        # Too many bytes for any 128 tokens: told without counting.
        assert "at least 220 tokens" in reply["error"]["message"]
    assert replies[2]["max_tokens_lowered"] is True
    assert replies[2]["max_tokens"] == 128 - replies[2]["usage"]["prompt_tokens"]


@pytest.mark.parametrize("name", SCRIPTED)
async def test_scripted_generation_whole_and_streamed(name: str) -> None:
    played = case(name)
    script = Script(answer=lambda _: scripted_answer(played["input"]["stub_emits"]))
    request = played["input"]["request"]
    expect = played["expect"]
    async with serving(script) as server:
        whole = (await server.chat(**request)).json()
        choice = whole["choices"][0]
        assert choice["message"]["content"] in expect["text_any_of"]
        assert choice["finish_reason"] == expect["finish_reason"]
        assert whole["usage"]["completion_tokens"] == expect["sampled_tokens"]

        response = await server.chat(**request, stream=True, stream_options={"include_usage": True})
        events = parse_sse(response.text)
        assert text_of(events) == choice["message"]["content"]
        assert events[-2]["choices"][0]["finish_reason"] == expect["finish_reason"]
        assert events[-1]["usage"]["completion_tokens"] == expect["sampled_tokens"]
        for forbidden in expect.get("raw_stream_must_not_contain", []):
            assert forbidden not in response.text
        for forbidden in expect.get("delta_must_not_contain", []):
            assert forbidden not in text_of(events)

        raw = await server.http.post(
            "/v1/completions", json={"model": "scripted", "prompt": "hi", **request}
        )
        assert raw.json()["choices"][0]["text"] == choice["message"]["content"]
        assert raw.json()["choices"][0]["finish_reason"] == expect["finish_reason"]

        body = {"prompt": "hi", **request, "stream": True}
        response = await server.http.post("/v1/completions", json=body)
        texts = [event["choices"][0] for event in parse_sse(response.text)]
        assert "".join(one["text"] for one in texts) == choice["message"]["content"]
        reasons = [one["finish_reason"] for one in texts]
        assert reasons == [None] * (len(texts) - 1) + [expect["finish_reason"]]
        assert texts[-1]["finish_detail"] == choice["finish_detail"]
        for forbidden in expect.get("raw_stream_must_not_contain", []):
            assert forbidden not in response.text


async def test_missing_max_tokens_does_not_cut_a_chat() -> None:
    """CTX-03; raw completions keep OpenAI's default of 16."""
    emits = case("CTX-03")["input"]["stub_emits_n_then_eos"]
    script = Script(answer=lambda _: [bytes.fromhex(emits["hex"])] * emits["n"])
    async with serving(script, max_model_len=2048) as server:
        for reply in (
            await server.chat(),
            await server.chat(max_tokens=None),
            await server.chat(max_completion_tokens=None),
        ):
            assert reply.json()["usage"]["completion_tokens"] == 701
            assert reply.json()["choices"][0]["finish_reason"] == "stop"
        raw = await server.http.post("/v1/completions", json={"prompt": "hi"})
        assert raw.json()["usage"]["completion_tokens"] == 16
        assert raw.json()["choices"][0]["finish_detail"] == {"type": "max_tokens"}
        assert "max_tokens_lowered" not in raw.json()


async def test_body_in_another_encoding() -> None:
    """REQ-01: a GBK body is refused in words, and the server lives on."""
    async with serving() as server:
        response = await server.http.post(
            "/v1/chat/completions",
            content=(CASES / "REQ-01-body-gbk.bin").read_bytes(),
            headers={"content-type": "application/json"},
        )
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"
        assert "UTF-8" in response.json()["error"]["message"]
        assert (await server.chat(max_tokens=4)).status_code == 200


async def test_usage_of_several_choices_and_prompts() -> None:
    """USG-03: a prompt counts once, every answer counts."""
    chat, text = (filled(one["json"]) for one in case("USG-03")["input"]["requests"])
    async with serving(Script(answer=lambda _: "a long enough answer")) as server:
        one = (await server.http.post("/v1/chat/completions", json={**chat, "n": 1})).json()
        three = (await server.http.post("/v1/chat/completions", json=chat)).json()
        assert len(three["choices"]) == 3
        assert three["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]
        assert three["usage"]["completion_tokens"] == 15
        assert three["usage"]["total_tokens"] == one["usage"]["prompt_tokens"] + 15
        both = (await server.http.post("/v1/completions", json=text)).json()
        assert [choice["index"] for choice in both["choices"]] == [0, 1]
        assert both["usage"]["prompt_tokens"] == 5
        assert both["usage"]["completion_tokens"] == 6


async def test_usage_chunk_is_the_last_and_only_one() -> None:
    """USG-01."""
    body = filled(case("USG-01")["input"]["requests"][0]["json"])
    async with serving(Script(answer=lambda _: "a long enough answer")) as server:
        streamed = parse_sse((await server.http.post("/v1/chat/completions", json=body)).text)
        whole = (
            await server.http.post("/v1/chat/completions", json={**body, "stream": False})
        ).json()
    assert streamed[-1]["choices"] == []
    assert all(event["usage"] is None and event["choices"] for event in streamed[:-1])
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert streamed[-1]["usage"][name] == whole["usage"][name]
    assert streamed[-1]["usage"]["prompt_tokens_details"] == {
        "cached_tokens": streamed[-1]["usage"]["prompt_cache_hit_tokens"]
    }


async def test_each_choice_of_a_stream_ends_once() -> None:
    """FIN-05."""
    body = filled(case("FIN-05")["input"]["requests"][0]["json"])
    async with serving(Script(answer=lambda _: "a long enough answer")) as server:
        events = parse_sse((await server.http.post("/v1/chat/completions", json=body)).text)
    assert events.pop()["choices"] == []
    ended: list[int] = []
    for event in events:
        (choice,) = event["choices"]
        assert choice["index"] not in ended
        if choice["finish_reason"] is not None:
            assert choice["finish_detail"] == {"type": "max_tokens"}
            ended.append(choice["index"])
    assert sorted(ended) == [0, 1]
    assert text_of(events, 0) == text_of(events, 1) == "a long enough answer"


async def test_events_of_a_stream_are_alike_and_come_at_once() -> None:
    """SSE-05."""
    request = case("SSE-05")["input"]["requests"][0]
    script = Script(answer=lambda _: "一二三四五六七", token_chars=1, token_s=0.1)
    arrivals: list[float] = []
    raw = b""
    async with (
        serving(script) as server,
        server.http.stream(
            "POST", request["path"], json=filled(request["json"]), headers=request["headers"]
        ) as response,
    ):
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-cache"
        assert "content-encoding" not in response.headers
        async for chunk in response.aiter_raw():
            arrivals.append(time.monotonic())
            raw += chunk
    events = parse_sse(raw.decode())
    for name in ("id", "created", "model", "object"):
        assert len({event[name] for event in events}) == 1
    assert events[0]["object"] == "chat.completion.chunk"
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0]["role"] == "assistant"
    assert not any("role" in delta for delta in deltas[1:])
    assert all(isinstance(delta["content"], str) for delta in deltas)
    assert [event["choices"][0]["finish_reason"] for event in events].count(None) == len(events) - 1
    assert text_of(events) == "一二三四五六"
    assert arrivals[-1] - arrivals[0] > 0.1
