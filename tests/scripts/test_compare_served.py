from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import httpx
import pytest

from scripts.chat_client import Answer, ask
from scripts.compare_served import CLASS_LOAD, chat_bodies, server, summary
from scripts.compare_worker import ChildError

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


def test_a_class_shares_four_prefixes_and_nothing_else() -> None:
    bodies = chat_bodies(CLASS_LOAD, seed=1)
    prefixes = Counter(body["messages"][0]["content"] for body in bodies)
    assert sorted(prefixes.values()) == [8, 8, 8, 8]
    assert all(290 <= len(prefix.split()) <= 300 for prefix in prefixes)
    users = [body["messages"][1]["content"] for body in bodies]
    assert len(set(users)) == 32
    words = [sum(len(m["content"].split()) for m in body["messages"]) for body in bodies]
    assert 325 <= min(words) <= 345
    assert 700 <= max(words) <= 723


def test_the_same_seed_asks_the_same_and_another_shares_no_prefix() -> None:
    assert chat_bodies(CLASS_LOAD, seed=1) == chat_bodies(CLASS_LOAD, seed=1)
    first, second = (
        {body["messages"][0]["content"] for body in chat_bodies(CLASS_LOAD, seed)}
        for seed in (1, 2)
    )
    assert first.isdisjoint(second)


def test_output_is_counted_from_the_first_request_to_the_last_token() -> None:
    answers = [
        Answer(10.0, 11.0, 14.0, 345, 0, 20),
        Answer(10.5, 13.5, 15.0, 723, 300, 20),
        Answer(14.0, 16.0, 20.0, 500, 300, 20),
    ]
    figures = summary(answers)
    assert figures["tokens_per_s"] == 60 / 10
    assert (figures["ttft_p50_s"], figures["ttft_max_s"]) == (2.0, 3.0)
    assert (figures["shortest_prompt"], figures["longest_prompt"]) == (345, 723)
    assert figures["cached_tokens"] == 600


def stream(*chunks: object) -> httpx.AsyncClient:
    """A client whose server answers with these chunks."""
    text = ": heartbeat\n\n" + "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=text + "data: [DONE]\n\n"))
    return httpx.AsyncClient(base_url="http://test", transport=transport)


def delta(**fields: str | None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields}]}


async def test_an_answer_is_timed_by_its_text_and_counted_by_its_usage() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}
    async with stream(
        delta(role="assistant", content=None), delta(content="a"), delta(content="b"), usage
    ) as client:
        answer = await ask(client, {"messages": []})
    assert (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens) == (9, 0, 3)
    assert answer.sent_s <= answer.first_s <= answer.last_s


async def test_an_answer_without_usage_is_an_error() -> None:
    async with stream(delta(content="a")) as client:
        with pytest.raises(ValueError, match="without usage"):
            await ask(client, {"messages": []})


async def test_a_server_that_ends_at_once_is_told_so(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    with pytest.raises(ChildError, match="ended with 3"):
        async with server(command, "/health", 60, tmp_path / "log"):
            pass
