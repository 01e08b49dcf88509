"""`include_stop_str_in_output`: what stopped an answer, as a part of it, on every way in."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api import Script
from tests.server.service.harness import Json, Server, parse_sse, serving, text_of
from tests.server.service.socket_events import text_in

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

ANSWER: list[bytes | int] = [b"one ", b"EN", b"Dless", 65, b" two"]


async def told(server: Server, **fields: Any) -> set[tuple[str, str]]:
    """The text and the finish reason, by every way in."""
    body: Json = {"max_tokens": 50, **fields}
    chat = (await server.chat(**body)).json()["choices"][0]
    events = await server.stream(**body)
    raw = {"prompt": "hi", **body}
    text = (await server.http.post("/v1/completions", json=raw)).json()["choices"][0]
    streamed = await server.http.post("/v1/completions", json={**raw, "stream": True})
    pieces = [event["choices"][0] for event in parse_sse(streamed.text)]
    async with server.socket() as socket:
        await socket.hello()
        await socket.ask(**body)
        answer = await socket.answer()
    return {
        (chat["message"]["content"], chat["finish_reason"]),
        (text_of(events), events[-1]["choices"][0]["finish_reason"]),
        (text["text"], text["finish_reason"]),
        ("".join(one["text"] for one in pieces), pieces[-1]["finish_reason"]),
        (text_in(answer), answer[-1]["finish_reason"]),
    }


@pytest.mark.parametrize(
    ("fields", "text", "with_stop"),
    [
        ({"stop": ["zz", "END"]}, "one ", "one END"),
        ({"stop_token_ids": [65]}, "one ENDless", "one ENDlessA"),
        ({"stop_token_ids": [258]}, "one ENDlessA two", "one ENDlessA two<|im_end|>"),
        # Nothing that the caller named stopped it.
        ({}, "one ENDlessA two", "one ENDlessA two"),
    ],
)
async def test_what_stopped_the_answer(fields: Json, text: str, with_stop: str) -> None:
    async with serving(Script(answer=lambda _: ANSWER)) as server:
        assert await told(server, **fields) == {(text, "stop")}
        assert await told(server, **fields, include_stop_str_in_output=False) == {(text, "stop")}
        assert await told(server, **fields, include_stop_str_in_output=True) == {
            (with_stop, "stop")
        }


async def test_a_length_limit_is_no_stop() -> None:
    async with serving(Script(answer=lambda _: ANSWER)) as server:
        found = await told(server, stop="D", include_stop_str_in_output=True, max_tokens=2)
    assert found == {("one EN", "length")}
