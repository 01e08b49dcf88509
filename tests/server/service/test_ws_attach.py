"""`attach`, `resume` and `cancel` over a real socket: a run outlives the sockets that follow it."""

from __future__ import annotations

import asyncio

import pytest

from engine.api import Script
from server.service.limits import ServiceLimits
from tests.server.service.harness import serving
from tests.server.service.socket_events import SLOW, SLOW_TEXT, check_run, text_in

pytestmark = pytest.mark.anyio


async def test_cancel_ends_the_answer_and_keeps_the_socket() -> None:
    async with serving(SLOW) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask()
        run = (await socket.until("delta"))[-1]["run"]
        await socket.send("cancel", run=run)
        finish = (await socket.answer())[-1]
        assert finish["finish_reason"] == "abort"
        assert finish["finish_detail"] == {"type": "cancelled"}
        assert 0 < finish["usage"]["completion_tokens"] < 100
        await server.until_idle()
        await socket.send("cancel", run=run)
        await socket.send("cancel", run="nothing")
        assert (await socket.receive())["code"] == "not_found"


async def test_a_run_outlives_its_socket() -> None:
    """Leaving is not cancelling: another socket of the same user reads every character once."""
    async with serving(SLOW) as server:
        async with server.socket() as socket:
            session = (await socket.hello())["session"]
            await socket.ask()
            first = [*(await socket.until("delta")), await socket.receive()]
        async with server.socket() as socket:
            welcome = await socket.hello(token=session)
            (active,) = welcome["active_runs"]
            assert active["run"] == first[0]["run"]
            assert active["last_seq"] >= first[-1]["seq"]
            await socket.send("attach", run=active["run"], after_seq=first[-1]["seq"])
            rest = await socket.answer()
        check_run(first + rest)
        assert text_in(first + rest) == SLOW_TEXT
        async with server.socket() as socket:
            await socket.hello(
                token=session,
                resume=[{"run": active["run"], "after_seq": 0}, {"run": "old", "after_seq": 3}],
            )
            gone = await socket.receive()
            assert (gone["code"], gone["run"]) == ("resume_gone", "old")
            again = await socket.answer()
            assert [event["type"] for event in again] == ["accepted", "start", "snapshot", "finish"]
            assert (again[:2], again[-1]) == (first[:2], rest[-1])
            assert text_in(again) == SLOW_TEXT


async def test_two_sockets_follow_one_run() -> None:
    async with serving(SLOW) as server, server.socket() as first, server.socket() as second:
        session = (await first.hello())["session"]
        await second.hello(token=session)
        await first.ask()
        accepted = await first.receive()
        await second.send("attach", run=accepted["run"], after_seq=0)
        theirs, others = await asyncio.gather(first.answer(), second.answer())
        assert [accepted, *theirs] == others
        assert text_in(others) == SLOW_TEXT


async def test_attaching_again_starts_over_without_a_mix() -> None:
    async with serving(SLOW) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask()
        await socket.until("delta")
        run = (await socket.receive())["run"]
        await socket.send("attach", run=run, after_seq=0)
        events = await socket.answer()
        from_start = events[[event["seq"] for event in events].index(1) :]
        check_run(from_start)
        assert text_in(from_start) == SLOW_TEXT


async def test_another_user_cannot_see_or_end_a_run() -> None:
    async with serving(SLOW) as server, server.socket() as mine, server.socket() as theirs:
        await mine.hello()
        await theirs.hello()
        await mine.ask()
        run = (await mine.receive())["run"]
        await theirs.send("attach", run=run, after_seq=0)
        assert (await theirs.receive())["code"] == "resume_gone"
        await theirs.send("cancel", run=run)
        assert (await theirs.receive())["code"] == "not_found"
        assert (await mine.answer())[-1]["finish_detail"] == {"type": "eos"}


async def test_a_late_reader_gets_a_snapshot() -> None:
    script = Script(answer=lambda _: SLOW_TEXT, token_chars=1, token_s=0.001)
    limits = ServiceLimits(run_log_max_events=16)
    async with serving(script, limits=limits) as server, server.socket() as socket:
        session = (await socket.hello())["session"]
        await socket.ask()
        run = (await socket.receive())["run"]
        assert text_in(await socket.answer()) == SLOW_TEXT
        async with server.socket() as late:
            await late.hello(token=session)
            await late.send("attach", run=run, after_seq=0)
            events = await late.answer()
        assert [event["type"] for event in events[:3]] == ["accepted", "start", "snapshot"]
        assert events[2]["through_seq"] + 1 == events[3]["seq"]
        assert text_in(events) == SLOW_TEXT
        assert len(events) < 25


async def test_a_run_s_events_over_sse() -> None:
    async with serving(SLOW) as server, server.socket() as socket:
        session = (await socket.hello())["session"]
        await socket.ask()
        run = (await socket.receive())["run"]
        events = await socket.answer()
        path = f"/v1/runs/{run}/events"
        own = {"authorization": f"Bearer {session}"}
        whole = await server.http.get(path, headers=own)
        kept = ("accepted", "start", "snapshot", "finish")
        assert [whole.text.count(f'"type":"{name}"') for name in kept] == [1, 1, 1, 1]
        last = len(events) + 1
        rest = await server.http.get(path, headers={**own, "last-event-id": str(last - 1)})
        assert rest.text.startswith(f"id: {last}\n")
        for seen in (last, last + 5):
            nothing = await server.http.get(path, headers={**own, "last-event-id": str(seen)})
            assert (nothing.status_code, nothing.content) == (204, b""), "a browser stops at it"
            assert "content-type" not in nothing.headers
        assert (await server.http.get(path)).status_code == 410
