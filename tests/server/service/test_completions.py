"""The OpenAI routes: validation, limits, headers, choices, aborts."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import pytest

from engine.api import GenerationRequest, OutputStream, Script
from server.service.auth import Auth
from server.service.limits import ServiceLimits
from tests.server.service.harness import (
    MODEL,
    SECRET,
    Json,
    Server,
    eventually,
    parse_event,
    parse_sse,
    serving,
    text_of,
)

pytestmark = pytest.mark.anyio

ENDLESS = Script(answer=lambda _: "word " * 5000, token_chars=5, token_s=0.01)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "a\0b"}]}, "messages[0].content"),
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
    ],
)
@pytest.mark.one_loop
async def test_bad_fields_are_named(server: Server, fields: Json, param: str) -> None:
    for stream in (False, True):
        response = await server.chat(**{"stream": stream, **fields})
        assert response.status_code == 400, response.text
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
        response_format={"type": "text"}, user="u", n=1, store=False,
    )  # fmt: skip
    assert response.status_code == 200
    assert "x-lectern-ignored" not in response.headers


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"echo": True}, "echo"),
        ({"suffix": "!"}, "suffix"),
        ({"n": 2, "best_of": 3}, "best_of"),
        ({"best_of": 2}, "best_of"),
        ({"min_tokens": 17}, "min_tokens"),  # max_tokens is 16 where none is named
    ],
)
@pytest.mark.one_loop
async def test_bad_fields_of_a_text_completion(server: Server, fields: Json, param: str) -> None:
    response = await server.http.post("/v1/completions", json={"prompt": "x", **fields})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize(
    "fields", [{"logprobs": False}, {"n": 2, "best_of": 2}, {"echo": False}, {"min_tokens": 16}]
)
@pytest.mark.one_loop
async def test_neutral_fields_of_a_text_completion(server: Server, fields: Json) -> None:
    response = await server.http.post("/v1/completions", json={"prompt": "x", **fields})
    assert response.status_code == 200, response.text
    assert all(choice["logprobs"] is None for choice in response.json()["choices"])


async def test_unknown_fields_are_named(server: Server) -> None:
    response = await server.chat(**{"fancy": 1, "häß\r\nlich: x": 2})
    assert response.status_code == 200
    assert response.headers["x-lectern-ignored"] == "fancy, h____lich__x".replace("_", "?")
    assert response.json()["choices"][0]["finish_reason"] == "stop"


async def test_body_over_the_limit() -> None:
    async with serving(limits=ServiceLimits(max_body_bytes=1000)) as server:
        assert (await server.chat("x" * 800)).status_code == 200
        declared = await server.chat("x" * 2000)
        assert declared.status_code == 413

        async def chunks() -> Any:
            for _ in range(20):
                yield b"x" * 100

        chunked = await server.http.post("/v1/chat/completions", content=chunks())
        assert chunked.status_code == 413
        assert chunked.json()["error"]["code"] == "request_too_large"
        assert (await server.http.get("/health")).status_code == 200


async def test_wrong_model_method_and_path(server: Server) -> None:
    missing = await server.chat(model="gpt-4")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"
    assert missing.json()["error"]["param"] == "model"
    wrong = await server.http.get("/v1/chat/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert (await server.http.get("/v1/nothing")).json()["error"]["code"] == "not_found"
    assert (await server.http.get("/v1/models/gpt-4")).status_code == 404
    assert (await server.http.get(f"/v1/models/{MODEL}")).json()["object"] == "model"


async def test_api_keys() -> None:
    async with serving(auth=Auth(SECRET, ["sk-good"])) as server:
        for headers in ({}, {"authorization": "Bearer sk-bad"}, {"authorization": "sk-good"}):
            refused = await server.http.get("/v1/models", headers=headers)
            assert refused.status_code == 401
        assert (await server.chat()).json()["error"]["type"] == "authentication_error"
        server.http.headers["authorization"] = "Bearer sk-good"
        assert (await server.chat()).status_code == 200


async def test_request_ids_are_only_labels() -> None:
    """CON-01: the same id twice at once, and ids that are no header's business."""
    script = Script(
        answer=lambda prompt: ("a" if "say a" in prompt else "b") * 20, token_chars=1, token_s=0.005
    )
    async with serving(script) as server:

        async def ask(letter: str) -> httpx.Response:
            body = {"messages": [{"role": "user", "content": f"say {letter}"}], "stream": True}
            return await server.http.post(
                "/v1/chat/completions", json=body, headers={"x-request-id": "same"}
            )

        replies = await asyncio.gather(ask("a"), ask("b"))
        assert [text_of(parse_sse(reply.text)) for reply in replies] == ["a" * 20, "b" * 20]
        assert {reply.headers["x-request-id"] for reply in replies} == {"same"}
        for odd in (b"x" * 10_000, "中文".encode(), b"a b", b""):
            server.http.headers.pop("x-request-id", None)
            reply = await server.http.post(
                "/v1/chat/completions",
                json={"messages": [{"role": "user", "content": "say a"}]},
                headers=[(b"x-request-id", odd)],
            )
            assert reply.status_code == 200
            assert reply.headers["x-request-id"].encode("latin-1") != odd
        await server.until_idle()


async def test_streams_interleave_and_a_late_one_does_not_wait() -> None:
    """Sixteen answers of different lengths stream at once; one that is sent while they run has
    its first text before the longest ends."""
    all_submitted = threading.Event()

    def answer(_prompt: str) -> str:
        all_submitted.wait(10)  # the first step waits until every request has come
        return "x" * 400

    order: list[int] = []
    num_begun = 0

    async def ask(server: Server, index: int, length: int) -> str:
        nonlocal num_begun
        body = {
            "messages": [{"role": "user", "content": f"{index}"}],
            "stream": True,
            "max_tokens": length,
        }
        text = ""
        async with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
            num_begun += 1
            if num_begun == 16:
                all_submitted.set()
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    order.append(index)
                    text += text_of([json.loads(line[6:])])
        return text

    async with serving(Script(answer=answer, token_chars=1, token_s=0.005)) as server:
        lengths = [20 + 6 * index for index in range(16)]
        running = [
            asyncio.create_task(ask(server, index, length)) for index, length in enumerate(lengths)
        ]
        await eventually(lambda: order.count(15) >= 10, within_s=20)
        late = await ask(server, 99, 3)
        texts = await asyncio.gather(*running)
        await server.until_idle()
    assert late == "xxx"
    assert [len(text) for text in texts] == lengths
    last = {index: place for place, index in enumerate(order)}
    assert order.index(99) < last[15]
    assert all(order.index(15) < last[index] for index in range(15))


@pytest.mark.parametrize("fields", [{"stream": True}, {"stream": True, "n": 3}, {"n": 2}, {}])
async def test_a_client_that_leaves_frees_the_engine(fields: Json) -> None:
    """ABT-01, streamed and not, one choice and several."""
    async with serving(ENDLESS, max_model_len=2048) as server:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1500, **fields}
        task = asyncio.create_task(server.http.post("/v1/chat/completions", json=body))
        await eventually(lambda: server.engine.stats.generated_tokens >= 6)
        assert server.engine.stats.num_running == fields.get("n", 1)
        steps = server.engine.stats.num_steps
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await server.until_idle(within_s=0.5)
        stats = server.engine.stats
        assert stats.num_steps - steps <= 5
        assert stats.used_blocks == 0
        assert stats.num_aborted == fields.get("n", 1)
        metrics = (await server.http.get("/metrics")).text
        assert 'lectern_generations_finished_total{detail="client_gone"}' in metrics
        assert (await server.chat(max_tokens=2)).status_code == 200


async def test_a_full_queue_says_when_to_come_back() -> None:
    async with serving(ENDLESS, max_num_seqs=1, max_queued_requests=1) as server:
        running = [asyncio.create_task(server.chat()) for _ in range(2)]
        await eventually(lambda: server.num_busy == 2)
        for stream in (False, True):
            refused = await server.chat(stream=stream)
            assert refused.status_code == 429
            assert refused.headers["content-type"] == "application/json"
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.json()["error"]["code"] == "queue_full"
        several = await server.chat(n=2)
        assert several.status_code == 429
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await server.until_idle()


async def test_draining_refuses_and_is_not_ready() -> None:
    async with serving() as server:
        assert (await server.http.get("/ready")).json() == {"ready": True, "state": "ready"}
        server.service.admission.drain()
        refused = await server.chat(stream=True)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "shutting_down"
        assert (await server.http.get("/ready")).status_code == 503
        assert (await server.http.get("/health")).status_code == 200


async def test_a_heartbeat_keeps_a_waiting_stream_open() -> None:
    script = Script(answer=lambda _: "late", prefill_s=0.3)
    async with serving(script, limits=ServiceLimits(heartbeat_s=0.05)) as server:
        response = await server.chat(stream=True)
    assert response.text.startswith(": waiting\n\n")
    events = [part for part in response.text.split("\n\n") if part.startswith("data: {")]
    assert text_of([parse_event(event) for event in events]) == "late"


async def test_no_choice_of_a_whole_reply_counts_as_read_slowly() -> None:
    """All are read while they come: together they may be far longer than what may wait."""
    script = Script(answer=lambda _: "x" * 200, token_chars=1, token_s=0.002)
    # A token and its two log probabilities count 129 characters: an answer is 25,800.
    async with serving(script, max_pending_chars=20_000) as server:
        response = await server.chat(n=2, logprobs=True, top_logprobs=1)
    choices = response.json()["choices"]
    assert [choice["finish_reason"] for choice in choices] == ["stop"] * 2
    assert [choice["message"]["content"] for choice in choices] == ["x" * 200] * 2
    assert [len(choice["logprobs"]["content"]) for choice in choices] == [200] * 2


async def test_a_client_that_does_not_read_is_dropped() -> None:
    """MEM-01: the engine is free after the send timeout, and nobody else has noticed."""
    script = Script(answer=lambda _: [b"x" * 20_000] * 5000, token_s=0.002)
    limits = ServiceLimits(send_timeout_s=0.4)
    async with serving(script, limits=limits, max_pending_chars=1 << 30) as server:
        host, port = server.base_url.removeprefix("http://").split(":")
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        with client:
            await loop.sock_connect(client, (host, int(port)))
            body = b'{"messages":[{"role":"user","content":"hi"}],"stream":true}'
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
            await loop.sock_sendall(client, head % len(body) + body)
            assert await loop.sock_recv(client, 100)
            await eventually(lambda: b'detail="slow_client"' in server.service.metrics.render())
            await server.until_idle()
            # What the kernel still holds, and then the end without a terminal chunk.
            received = b"-"
            async with asyncio.timeout(5):
                while chunk := await loop.sock_recv(client, 1 << 20):
                    received = chunk
            assert not received.endswith(b"0\r\n\r\n")
            assert (await server.chat(max_tokens=1)).status_code == 200


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


async def _submitted(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[GenerationRequest]:
    """What the engine is given from now on."""
    found: list[GenerationRequest] = []
    generate = server.engine.generate

    def record(request: GenerationRequest) -> AbstractAsyncContextManager[OutputStream]:
        found.append(request)
        return generate(request)

    monkeypatch.setattr(server.engine, "generate", record)
    return found


async def test_choices_share_their_prompt_and_have_seeds_of_their_own(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await _submitted(server, monkeypatch)
    await server.http.post("/v1/completions", json={"prompt": ["a", "b"], "n": 3, "seed": 8})
    ids = [request.request_id for request in found]
    assert len(set(ids)) == 6
    assert [request.same_prompt_as for request in found] == [
        *(None, ids[0], ids[0]),
        *(None, ids[3], ids[3]),
    ]
    assert [request.params.seed for request in found] == [8, 9, 10] * 2
    assert [request.prompt_token_ids for request in found] == [(97,)] * 3 + [(98,)] * 3


async def test_a_request_is_its_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key's; without keys, whoever the caller names, never one of our own users."""
    async with serving() as server:
        found = await _submitted(server, monkeypatch)
        own, session = server.service.auth.new_session()
        for fields in ({}, {"user": "ann"}, {"user": own}, {"user": "x" * 5000}):
            assert (await server.chat(**fields)).status_code == 200
        owners = [request.user for request in found]
        assert owners[0] == ""
        assert len(set(owners)) == 4
        assert own not in owners
        assert max(map(len, owners)) < 200
        async with server.socket() as socket:
            await socket.hello(token=session)
            await socket.ask()
            await socket.answer()
        assert found[-1].user == own
    async with serving(auth=Auth(SECRET, ["sk-one", "sk-two"])) as server:
        found = await _submitted(server, monkeypatch)
        for key in ("sk-one", "sk-one", "sk-two"):
            server.http.headers["authorization"] = f"Bearer {key}"
            await server.chat(user=f"not {key}")
        owners = [request.user for request in found]
        assert owners[0] == owners[1] != owners[2]
        assert all(owners)
