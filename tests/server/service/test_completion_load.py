"""Many completions at once, and clients that leave, wait or do not read."""

from __future__ import annotations

import asyncio
import json
import socket
import threading

import pytest

from engine.api import Script
from server.service.limits import ServiceLimits
from tests.server.service.harness import (
    Json,
    Server,
    eventually,
    parse_event,
    serving,
    text_of,
)
from tests.server.service.socket_events import held

pytestmark = pytest.mark.anyio

ENDLESS = Script(answer=lambda _: "word " * 5000, token_chars=5, token_s=0.01)


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


@pytest.mark.parametrize("fields", [{"stream": True}, {"n": 2}])
async def test_a_client_that_leaves_frees_the_engine(fields: Json) -> None:
    """On either loop; how soon, and by every route, is seen in `test_aborts`."""
    async with serving(ENDLESS, max_model_len=2048) as server:
        task = asyncio.create_task(server.chat(max_tokens=1500, **fields))
        await eventually(lambda: server.engine.stats.generated_tokens >= 6)
        assert server.engine.stats.num_running == fields.get("n", 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await server.until_idle()
        assert server.engine.stats.used_blocks == 0
        assert server.engine.stats.num_aborted == fields.get("n", 1)
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
    gate = threading.Event()
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with (
        serving(held("late", gate), limits=ServiceLimits(heartbeat_s=0.05)) as server,
        server.http.stream("POST", "/v1/chat/completions", json=body) as response,
    ):
        parts = response.aiter_text()
        text = await anext(parts)
        gate.set()
        text += "".join([part async for part in parts])
    assert text.startswith(": waiting\n\n")
    events = [part for part in text.split("\n\n") if part.startswith("data: {")]
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
