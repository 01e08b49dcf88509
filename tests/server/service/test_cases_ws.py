"""Cases of faults seen in other servers, played over `/ws/v1` with the values they call right."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from engine.api import Script
from server.service.options import GenerationOptions
from tests.server.service.harness import (
    TINY_MODEL,
    Json,
    Socket,
    eventually,
    filled,
    scripted_answer,
    serving,
)
from tests.server.service.socket_events import check_run, text_in
from tests.support.cases import case

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

SCRIPTED = ["DET-01", "DET-03", "FIN-01", "SSE-01", "STP-01", "STP-03", "STP-08"]
TABLES = {"CTX-05": None, "STP-05": None, "TPL-01": None, "SMP-01": TINY_MODEL}
OPTIONS = frozenset(GenerationOptions.__struct_fields__)
OF_HTTP = frozenset({"model", "messages", "stream", "stream_options"})


@pytest.mark.parametrize("name", SCRIPTED)
async def test_scripted_generation(name: str) -> None:
    """The right text in pieces that never take anything back, one end, and the right usage."""
    played = case(name)
    expect = played["expect"]
    script = Script(answer=lambda _: scripted_answer(played["input"]["stub_emits"]))
    async with serving(script) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask(**played["input"]["request"])
        raw: list[str] = []
        while not raw or '"type":"finish"' not in raw[-1]:
            raw.append(str(await socket.connection.recv()))
        events = [json.loads(frame) for frame in raw]
        check_run(events)
        finish = events[-1]
        assert text_in(events) in expect["text_any_of"]
        assert finish["finish_reason"] == expect["finish_reason"]
        assert finish["usage"]["completion_tokens"] == expect["sampled_tokens"]
        assert (
            finish["usage"]["total_tokens"]
            == finish["usage"]["prompt_tokens"] + (expect["sampled_tokens"])
        )
        deltas = [event["text"] for event in events if event["type"] == "delta"]
        assert all(deltas), "a delta has text"
        # Deltas of several tokens may merge, but no more is ever told than after some token.
        told = set(itertools.accumulate(map(len, deltas)))
        assert told <= set(expect["sendable_chars_after_each_token"])
        for forbidden in expect.get("delta_must_not_contain", []):
            assert forbidden not in text_in(events)
        for forbidden in expect.get("raw_stream_must_not_contain", []):
            assert forbidden not in "".join(raw)


@pytest.mark.parametrize(("name", "model"), TABLES.items(), ids=TABLES)
async def test_each_request_is_answered_as_over_http(name: str, model: Path | None) -> None:
    """A refusal names the same field; what is no option of a socket is not sent."""
    played = case(name)
    requests = [filled(one["json"]) for one in played["input"]["requests"]]
    expected = played["expect"].get("each", [{"status": 200}] * len(requests))
    num_played = 0
    script = Script(answer=lambda _: "fine")
    async with serving(script, model=model) as server, server.socket() as socket:
        await socket.hello()
        for number, (request, expect) in enumerate(zip(requests, expected, strict=True)):
            if "messages" not in request or not request.keys() <= OPTIONS | OF_HTTP:
                continue
            num_played += 1
            options = {name: value for name, value in request.items() if name in OPTIONS}
            await socket.send("chat", id=str(number), messages=request["messages"], options=options)
            assert _is_met(expect, (await socket.answer())[-1]), (request, expect)
        await socket.ask(id="alive", max_tokens=4)
        assert (await socket.answer())[-1]["type"] == "finish"
    assert num_played > 0


def _is_met(expect: Json, end: Json) -> bool:
    if "any_of" in expect:
        return any(_is_met(one, end) for one in expect["any_of"])
    status = expect.get("status", 400 if "error_type" in expect else 200)
    if status == 200:
        return bool(end["type"] == "finish")
    param = (end.get("param") or "").removeprefix("options.")
    return (
        end["type"] == "error"
        and end["code"] in ("bad_request", "prompt_too_long")
        and param.startswith(expect.get("error_param") or "")
        and expect.get("message_contains", "") in end["message"]
    )


async def test_prompt_beyond_the_window() -> None:
    """CTX-01: both sizes are named; a large max_tokens is lowered, and the start says so."""
    requests = [filled(one["json"]) for one in case("CTX-01")["input"]["requests"]]
    async with serving(max_model_len=128) as server, server.socket() as socket:
        await socket.hello()
        for number, request in enumerate(requests):
            options = {"max_tokens": request["max_tokens"]} if "max_tokens" in request else {}
            await socket.send("chat", id=str(number), messages=request["messages"], options=options)
            events = await socket.answer()
            check_run(events)
            if number < 2:
                assert events[-1]["code"] == "prompt_too_long"
                assert "128" in events[-1]["message"]
            else:
                start = next(event for event in events if event["type"] == "start")
                assert start["max_tokens_lowered"] is True
                assert start["max_tokens"] == 128 - start["prompt_tokens"]
                assert events[-1]["type"] == "finish"


async def test_missing_max_tokens_does_not_cut_a_chat() -> None:
    """CTX-03."""
    emits = case("CTX-03")["input"]["stub_emits_n_then_eos"]
    script = Script(answer=lambda _: [bytes.fromhex(emits["hex"])] * emits["n"])
    async with serving(script, max_model_len=2048) as server, server.socket() as socket:
        await socket.hello()
        asked: dict[str, dict[str, Any]] = {"a": {}, "b": {"max_tokens": None}}
        for id, options in asked.items():
            await socket.ask(id=id, **options)
            finish = (await socket.answer())[-1]
            assert finish["usage"]["completion_tokens"] == 701
            assert finish["finish_detail"] == {"type": "eos"}


async def test_an_engine_error_in_mid_stream_is_one_error_event() -> None:
    """SSE-03 for runs: what was told stays told, then one `error`, and the neighbour goes on."""
    script = Script(answer=lambda prompt: "abcdefgh" * 8, token_s=0.002, fail_after=3)
    async with serving(script) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask("boom")
        await socket.ask("short", id="q2", max_tokens=2)
        ends: dict[str, Json] = {}
        texts: dict[str, str] = {}
        while len(ends) < 2:
            event = await socket.receive()
            texts[event["run"]] = texts.get(event["run"], "") + event.get("text", "")
            if event["type"] in ("finish", "error"):
                assert event["run"] not in ends
                ends[event["run"]] = event
        kinds = {end["type"]: run for run, end in ends.items()}
        assert texts[kinds["error"]] == ("abcdefgh" * 8)[: 3 * 4]
        assert ends[kinds["error"]]["code"] == "internal"
        assert ends[kinds["error"]]["id"] == "q1"
        assert ends[kinds["finish"]]["finish_detail"] == {"type": "max_tokens"}
        await server.until_idle()


async def test_a_bad_frame_costs_one_error() -> None:
    """WSK-01, literally."""
    played = case("WSK-01")
    async with serving() as server, server.socket() as a, server.socket() as b:
        told: dict[str, list[Json]] = {"A": [], "B": []}
        await a.connection.send("{not json")
        told["A"].append(await a.receive())
        for name, socket in (("A", a), ("B", b)):
            await socket.ask("a normal question", id=name, max_tokens=4)
            told[name] += await socket.answer()
        everything = told["A"] + told["B"]
        errors = [message for message in everything if message["type"] == "error"]
        assert len(errors) == played["expect"]["error_messages"]
        assert errors[0]["code"] == "bad_request"
        ends = [message for message in everything if message["type"] == "finish"]
        assert len(ends) == played["expect"]["answers"]
        assert all(end["finish_reason"] == "length" for end in ends)
        open_after = [name for name, socket in (("A", a), ("B", b)) if await _answers(socket)]
        assert open_after == played["expect"]["open_after"]


async def test_a_second_question_while_the_first_is_answered() -> None:
    """WSK-05, literally: both run, each frame bears its run, and each has its own text."""
    expect = case("WSK-05")["expect"]["answers"]
    script = Script(
        answer=lambda prompt: "a" * 40 if "first" in prompt else "b" * 5,
        token_chars=1,
        token_s=0.02,
    )
    async with serving(script) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask("first", id="q1")
        events: list[Json] = []
        while sum(event["type"] == "delta" for event in events) < 5:
            events.append(await socket.receive())
        await socket.ask("second", id="q2")
        while sum(event["type"] in ("finish", "error") for event in events) < 2:
            events.append(await socket.receive())
        by_run: dict[str, list[Json]] = {}
        for event in events:
            by_run.setdefault(event["run"], []).append(event)
        answers: dict[str, Any] = {}
        for told in by_run.values():
            check_run(told)
            answers[told[0]["id"]] = text_in(told)
        assert answers == {"q1": "a" * 40, "q2": "b" * 5}
        assert expect["q1"] == "a*40"
        await eventually(lambda: server.num_busy == 0)


async def _answers(socket: Socket) -> bool:
    await socket.send("ping", id="alive")
    return await socket.receive() == {"type": "pong", "id": "alive"}
