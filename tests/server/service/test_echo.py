"""`echo` of a text completion: the prompt in front of what is generated, or alone."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api import Script
from tests.server.service.harness import Json, Server, parse_sse, serving
from tests.server.service.recorded_requests import recorded_requests

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

SCRIPT = Script(answer=lambda prompt: f"[{len(prompt)}]", token_chars=1)


async def complete(server: Server, **fields: Any) -> Json:
    response = await server.http.post("/v1/completions", json={"echo": True, **fields})
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


async def streamed(server: Server, **fields: Any) -> list[Json]:
    response = await server.http.post(
        "/v1/completions",
        json={
            "echo": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **fields,
        },
    )
    assert response.status_code == 200, response.text
    return parse_sse(response.text)


def texts_of(events: list[Json]) -> dict[int, str]:
    found: dict[int, str] = {}
    for event in events:
        for choice in event["choices"]:
            found[choice["index"]] = found.get(choice["index"], "") + choice["text"]
    return found


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("ab", ["ab[2]"] * 2),
        (["ab", "cde"], ["ab[2]"] * 2 + ["cde[3]"] * 2),
        ([97, 98], ["ab[2]"] * 2),
        ([[97], [98, 99]], ["a[1]"] * 2 + ["bc[2]"] * 2),
        ([97, 257], ["a<|im_start|>[13]"] * 2),
    ],
)
async def test_every_choice_begins_with_its_prompt(prompt: Any, texts: list[str]) -> None:
    async with serving(SCRIPT) as server:
        whole = await complete(server, prompt=prompt, n=2)
        events = await streamed(server, prompt=prompt, n=2)
    assert [choice["text"] for choice in whole["choices"]] == texts
    assert texts_of(events) == dict(enumerate(texts))
    num_tokens = sum(len(text[text.index("[") :]) + 1 for text in texts)
    assert whole["usage"]["completion_tokens"] == num_tokens
    assert events[-1]["usage"]["completion_tokens"] == num_tokens


async def test_the_prompt_alone_needs_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(SCRIPT) as server:
        asked = recorded_requests(server, monkeypatch)
        whole = await complete(server, prompt=["x", "yz"], max_tokens=0, n=2)
        events = await streamed(server, prompt=["x", "yz"], max_tokens=0, n=2)
        assert not asked
    texts = ["x", "x", "yz", "yz"]
    assert [choice["text"] for choice in whole["choices"]] == texts
    assert texts_of(events) == dict(enumerate(texts))
    for choice in whole["choices"]:
        assert choice["finish_reason"] == "length"
        assert choice["finish_detail"] == {"type": "max_tokens"}
    usage = whole["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (3, 0, 3)
    assert events[-1]["usage"] == usage
    assert "max_tokens_lowered" not in whole


async def test_the_prompt_is_checked_as_ever() -> None:
    async with serving(SCRIPT, max_model_len=64) as server:
        for prompt in ("", [], "x" * 64, "a\0b", [1 << 40]):
            body = {"prompt": prompt, "echo": True, "max_tokens": 0}
            refused = await server.http.post("/v1/completions", json=body)
            assert refused.status_code == 400
            assert refused.json()["error"]["param"] == "prompt"


async def test_stop_and_length_are_as_without() -> None:
    async with serving(Script(answer=lambda _: "one END two", token_chars=4)) as server:
        stopped = await complete(server, prompt="say END: ", stop="END")
        kept = await complete(
            server, prompt="say END: ", stop="END", include_stop_str_in_output=True
        )
        cut = await complete(server, prompt="say: ", max_tokens=1)
    assert stopped["choices"][0]["text"] == "say END: one "
    assert stopped["choices"][0]["finish_detail"] == {"type": "stop_string", "matched": "END"}
    assert kept["choices"][0]["text"] == "say END: one END"
    assert cut["choices"][0]["text"] == "say: one "
    assert cut["choices"][0]["finish_reason"] == "length"
