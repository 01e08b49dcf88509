"""Cases about sampling parameters, played against a server with a tiny real model."""

from __future__ import annotations

import asyncio
import time

import psutil
import pytest

from engine.api import FinishType
from tests.server.service.harness import (
    TINY_MODEL,
    Json,
    Server,
    eventually,
    filled,
    parse_sse,
    serving,
    text_of,
)
from tests.server.service.played_cases import play, strict_json
from tests.support.cases import case

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


async def test_logit_bias_outside_the_vocabulary() -> None:
    """SMP-01: the last id is answered, the first behind it is not."""
    replies = await play("SMP-01", model=TINY_MODEL)
    assert "260" in replies[0]["error"]["message"]
    assert replies[5]["usage"]["completion_tokens"] == 2


async def test_tiny_temperatures_and_top_p_are_greedy() -> None:
    """SMP-03."""
    replies = await play("SMP-03", model=TINY_MODEL)
    async with serving(model=TINY_MODEL) as server:
        greedy = (await server.chat(max_tokens=4, temperature=0)).json()
    texts = [reply["choices"][0]["message"]["content"] for reply in (greedy, *replies)]
    assert texts == [texts[0]] * 6
    assert len(texts[0]) > 0


async def test_log_probabilities_are_strict_json() -> None:
    """SMP-06, whole and streamed: finite numbers, also for tokens that a bias forbids."""
    replies = await play("SMP-06", model=TINY_MODEL)
    for reply in replies[:2]:
        entries = reply["choices"][0]["logprobs"]["content"]
        assert all(-9999.0 <= one["logprob"] <= 0.0 for one in entries)
        assert all(len(one["top_logprobs"]) == 5 for one in entries)
    assert replies[2]["error"]["param"] == "echo"
    async with serving(model=TINY_MODEL) as server:
        for request in case("SMP-06")["input"]["requests"][:2]:
            body = {**filled(request["json"]), "stream": True}
            streamed = await server.http.post(request["path"], json=body)
            lines = [line[6:] for line in streamed.text.splitlines() if line.startswith("data: {")]
            assert len([strict_json(line) for line in lines]) >= 2


async def test_a_huge_n_costs_nothing() -> None:
    """SEC-07: refused at once, in little memory, and nobody else waits. Everything is done by one
    thread here, whose processor time no other program spoils."""
    slowest_s = 0.0

    async def probe(server: Server) -> None:
        nonlocal slowest_s
        while True:
            began = time.thread_time()
            assert (await server.http.get("/health")).status_code == 200
            slowest_s = max(slowest_s, time.thread_time() - began)

    async with serving() as server:
        probing = asyncio.create_task(probe(server))
        await eventually(lambda: slowest_s > 0.0)
        before = psutil.Process().memory_info().rss
        played = case("SEC-07")
        bodies = [filled(request["json"]) for request in played["input"]["requests"]]
        for request, body, param in zip(
            played["input"]["requests"], bodies, ("n", "n", "best_of", "prompt"), strict=True
        ):
            began = time.thread_time()
            reply = await server.http.post(request["path"], json=body)
            assert time.thread_time() - began < 0.5
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
        assert psutil.Process().memory_info().rss - before < 32 << 20
        assert slowest_s < 0.5
        probing.cancel()
        assert (await server.chat(max_tokens=4)).status_code == 200


async def test_seeded_answers_do_not_depend_on_company() -> None:
    """SMP-05: the same 16 tokens in five settings, streamed or not, three rounds each; the two
    choices of one seed differ, and come again."""
    target = case("SMP-05")["input"]["target"]
    async with serving(model=TINY_MODEL) as server:

        async def ask(stream: bool = False, **fields: object) -> Json:
            body = {**target, "ignore_eos": True, "logprobs": 0, **fields, "stream": stream}
            response = await server.http.post("/v1/completions", json=body)
            assert response.status_code == 200, response.text
            if not stream:
                return dict(response.json())
            choices = [event["choices"][0] for event in parse_sse(response.text)]
            told = [choice["logprobs"] for choice in choices if choice["logprobs"]]
            tokens = [token for one in told for token in one["tokens"]]
            return {"choices": [{"logprobs": {"tokens": tokens}}]}

        async def others(count: int, **fields: object) -> list[asyncio.Task[Json]]:
            """Requests that are being answered."""
            running = server.engine.stats.num_running
            body: Json = {"seed": None, "max_tokens": 120, "prompt": "somebody else", **fields}
            tasks = [asyncio.create_task(ask(**body)) for _ in range(count)]
            await eventually(lambda: server.engine.stats.num_running >= running + count)
            return tasks

        seen: list[list[str]] = []
        for _ in range(3):
            for stream in (False, True):
                for company in (
                    [],
                    await others(1),
                    await others(3),
                    await others(1, seed=7),
                    await _aborted(server, await others(1)),
                ):
                    reply = await ask(stream)
                    seen.append(reply["choices"][0]["logprobs"]["tokens"])
                    await asyncio.gather(*company)
        assert len(seen[0]) == 16
        assert seen == [seen[0]] * 30
        pairs = [await ask(n=2) for _ in range(2)]
        first, second = ([c["logprobs"]["tokens"] for c in pair["choices"]] for pair in pairs)
        assert first == second
        assert first[0] == seen[0]
        assert first[1] != first[0]


async def _aborted(server: Server, tasks: list[asyncio.Task[Json]]) -> list[asyncio.Task[Json]]:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await server.until_idle(within_s=20)  # how soon is not this test's question
    assert server.engine.stats.num_aborted > 0
    return []


async def test_each_choice_of_a_sampled_stream_ends_once() -> None:
    """FIN-05 with a model: two choices that differ, each with its own end, then usage, then
    [DONE]."""
    body = filled(case("FIN-05")["input"]["requests"][0]["json"])
    async with serving(model=TINY_MODEL) as server:
        response = await server.http.post("/v1/chat/completions", json=body)
        events = parse_sse(response.text)
        assert response.text.count("[DONE]") == 1
        whole = await server.http.post("/v1/chat/completions", json={**body, "stream": False})
    usage = events.pop()
    assert usage["choices"] == []
    assert usage["usage"] == whole.json()["usage"] | {
        name: usage["usage"][name]
        for name in (
            "prompt_tokens_details",
            "prompt_cache_hit_tokens",
            "prompt_cache_miss_tokens",
        )
    }
    ended: list[int] = []
    for event in events:
        (choice,) = event["choices"]
        assert choice["index"] not in ended
        if choice["finish_reason"] is not None:
            ended.append(choice["index"])
    assert sorted(ended) == [0, 1]
    texts = [text_of(events, index) for index in (0, 1)]
    assert texts == [choice["message"]["content"] for choice in whole.json()["choices"]]
    assert texts[0] != texts[1]


async def test_penalties_bias_and_min_tokens_reach_the_model() -> None:
    """Each changes a greedy answer as it must."""
    async with serving(model=TINY_MODEL) as server:

        async def ask(**fields: object) -> Json:
            body = {"prompt": "seeded prompt", "temperature": 0, "max_tokens": 40, **fields}
            reply = (await server.http.post("/v1/completions", json=body)).json()
            return dict(reply["choices"][0]) | {"usage": reply["usage"]}

        ignoring = {"ignore_eos": True, "logprobs": 0}
        plain = (await ask(**ignoring))["logprobs"]["tokens"]
        chosen = await ask(logit_bias={"65": 100}, **ignoring)
        assert chosen["text"] == "A" * 40
        two = {"logit_bias": {"65": 100, "66": 100}}
        varied = await ask(frequency_penalty=2, **two, **ignoring)
        assert set(varied["text"]) == {"A", "B"}
        assert not {"AAA", "BBB"} & {varied["text"][i : i + 3] for i in range(38)}
        assert len(set((await ask(frequency_penalty=-2, **two, **ignoring))["text"])) == 1
        unlike = await ask(frequency_penalty=2, repetition_penalty=2, **ignoring)
        assert len(set(unlike["logprobs"]["tokens"])) > len(set(plain))
        ends = {"logit_bias": {"258": 100, "65": 50}}
        at_once = await ask(**ends)
        assert at_once["finish_detail"]["type"] == FinishType.EOS
        assert at_once["usage"]["completion_tokens"] == 1
        late = await ask(min_tokens=7, stop="AA", **ends)
        assert (late["text"], late["usage"]["completion_tokens"]) == ("A" * 7, 8)
        assert late["finish_detail"]["type"] == FinishType.EOS
