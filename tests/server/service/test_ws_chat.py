"""`chat` over a real socket: from the question to its one end."""

from __future__ import annotations

import pytest

from engine.api import Script
from server.service.limits import ServiceLimits
from tests.server.service.harness import (
    MODEL,
    Json,
    Server,
    eventually,
    serving,
)
from tests.server.service.socket_events import SLOW, SLOW_TEXT, check_run, text_in

pytestmark = pytest.mark.anyio


async def test_hello_and_a_chat(server: Server) -> None:
    async with server.socket() as socket:
        assert socket.connection.subprotocol == "lectern.v1"
        welcome = await socket.hello(locale="zh-CN")
        assert welcome["model"] == {
            "name": MODEL,
            "is_fallback": False,
            "max_model_len": 4096,
            "window": 4096,
        }
        assert welcome["limits"]["max_message_bytes"] > 0
        assert welcome["active_runs"] == []
        await socket.ask("Where?", max_tokens=4, temperature=0, seed=1, stop="never")
        events = await socket.answer()
        check_run(events)
        assert [event["type"] for event in events[:2]] == ["accepted", "start"]
        assert events[0]["id"] == "q1"
        finish = events[-1]
        assert finish["finish_reason"] == "length"
        assert finish["finish_detail"] == {"type": "max_tokens"}
        assert finish["usage"]["completion_tokens"] == 4
        assert finish["usage"]["prompt_tokens_details"] == {
            "cached_tokens": finish["usage"]["prompt_cache_hit_tokens"]
        }
        assert finish["timing"]["ttft_ms"] <= finish["timing"]["total_ms"]
        assert text_in(events) == "You asked: Where"
        await socket.send("ping", id="p")
        assert await socket.receive() == {"type": "pong", "id": "p"}


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ""}, "stop"),
        ({"temperature": 9}, "temperature"),
    ],
)
async def test_bad_options_end_the_run_with_one_error(
    server: Server, options: Json, param: str
) -> None:
    async with server.socket() as socket:
        await socket.hello()
        await socket.ask(**options)
        events = await socket.answer()
        check_run(events)
        assert events[-1] | {"message": ""} == {
            "type": "error",
            "run": events[0]["run"],
            "seq": 2,
            "id": "q1",
            "code": "bad_request",
            "message": "",
            "retryable": False,
            "param": param,
        }


async def test_a_prompt_that_is_too_long() -> None:
    async with serving(max_model_len=128) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask("x" * 200)
        error = (await socket.answer())[-1]
        assert error["code"] == "prompt_too_long"
        assert "128" in error["message"]
        await socket.ask("x", id="q2", max_tokens=1000)
        start = (await socket.until("start"))[-1]
        assert start["max_tokens_lowered"] is True
        assert start["max_tokens"] == 128 - start["prompt_tokens"]


async def test_the_same_id_gives_the_same_run() -> None:
    async with serving(SLOW) as server, server.socket() as socket:
        await socket.hello()
        for _ in range(3):
            await socket.ask(id="once")
        events = await socket.answer()
        check_run(events)
        assert text_in(events) == SLOW_TEXT
        assert server.engine.stats.num_finished == 1


async def test_runs_per_connection_are_bounded() -> None:
    limits = ServiceLimits(max_runs_per_connection=2)
    async with serving(SLOW, limits=limits) as server, server.socket() as socket:
        await socket.hello()
        for name in ("q1", "q2", "q3"):
            await socket.ask(id=name)
        events = await socket.until("error")
        assert (events[-1]["id"], events[-1]["code"]) == ("q3", "rate_limited")
        await socket.answer()
        await socket.answer()
        await socket.ask(id="q4")
        assert (await socket.answer())[-1]["type"] == "finish"


async def test_runs_per_user_are_bounded_over_all_sockets() -> None:
    """Opening sockets, asking and leaving made runs without any bound."""
    limits = ServiceLimits(max_runs_per_user=2)
    slower = Script(answer=lambda _: SLOW_TEXT, token_s=0.02)
    async with serving(slower, limits=limits) as server:
        async with server.socket() as socket:
            session = (await socket.hello())["session"]
            for name in ("q1", "q2"):
                await socket.ask(id=name)
                await socket.until("accepted")
        async with server.socket() as socket:
            await socket.hello(token=session)
            await socket.ask(id="q3")
            error = await socket.receive()
            assert (error["id"], error["code"]) == ("q3", "rate_limited")
            async with server.socket() as other:
                await other.hello()
                await other.ask(max_tokens=1)
                assert (await other.answer())[-1]["type"] == "finish"
            user = server.service.auth.user_from_session(session)
            assert user is not None
            await eventually(lambda: not server.service.runs.active(user))
            await socket.ask(id="q3", max_tokens=1)
            assert (await socket.answer())[-1]["type"] == "finish"


async def test_a_queued_question_hears_its_place() -> None:
    slower = Script(answer=lambda _: SLOW_TEXT, token_s=0.01)
    async with serving(slower, max_num_seqs=1) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask(id="q1")
        await socket.until("start")
        await socket.ask(id="q2")
        queued = [event for event in await socket.answer() if event["type"] == "queued"]
        assert [event["position"] for event in queued] == [1]
        assert (await socket.answer())[-1]["finish_detail"] == {"type": "eos"}


async def test_a_long_first_step_is_no_queue() -> None:
    """On an idle server a long prompt was told to be next in line, with nobody before it."""
    async with serving(Script(prefill_s=0.8)) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask()
        assert "queued" not in {event["type"] for event in await socket.answer()}
