"""A run that has nothing to tell says so again and again, wherever it waits."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest

from server.service.limits import ServiceLimits
from tests.server.service.harness import Json, eventually, serving
from tests.server.service.socket_events import check_run, held

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

LIMITS = ServiceLimits(heartbeat_s=0.1)


async def test_in_the_queue() -> None:
    """The place that stays the same is told again."""
    gate = threading.Event()
    async with (
        serving(held("a" * 12, gate), limits=LIMITS, max_num_seqs=1) as server,
        server.socket() as socket,
    ):
        await socket.hello()
        await socket.ask("one", id="q1")
        await socket.until("accepted")
        await eventually(lambda: server.engine.num_requests == 1)
        await socket.ask("two", id="q2")
        events: list[Json] = []
        while sum(event.get("position") == 1 for event in events) < 3:
            events.append(await socket.receive())
        gate.set()
        while sum(event["type"] == "finish" for event in events) < 2:
            events.append(await socket.receive())
    second = next(event["run"] for event in events if event.get("id") == "q2")
    told = [event for event in events if event["run"] == second]
    check_run(told)
    kinds = [kind for kind, _ in itertools.groupby(event["type"] for event in told)]
    assert kinds == ["accepted", "queued", "start", "delta", "finish"]
    queued = [event["position"] for event in told if event["type"] == "queued"]
    assert queued == sorted(queued, reverse=True)


async def test_in_a_long_prefill() -> None:
    gate = threading.Event()
    async with (
        serving(held("a" * 12, gate), limits=LIMITS) as server,
        server.socket() as socket,
    ):
        await socket.hello()
        await socket.ask()
        events = [event for _ in range(3) for event in await socket.until("progress")]
        gate.set()
        events += await socket.answer()
    check_run(events)
    kinds = [kind for kind, _ in itertools.groupby(event["type"] for event in events)]
    assert kinds == ["accepted", "progress", "start", "delta", "finish"]
    progress = [event for event in events if event["type"] == "progress"]
    start = next(event for event in events if event["type"] == "start")
    assert {(event["prefilled"], event["total"]) for event in progress} == {
        (0, start["prompt_tokens"])
    }


async def test_over_sse_there_are_comments_where_the_run_is_silent() -> None:
    """A run that looks for its passages emits nothing at all."""
    gate = asyncio.Event()
    async with serving(limits=LIMITS) as server:
        user, session = server.service.auth.new_session()

        async def produce(run: object) -> None:
            await gate.wait()

        run = server.service.runs.open(user, produce)
        own = {"authorization": f"Bearer {session}"}
        async with server.http.stream("GET", f"/v1/runs/{run.id}/events", headers=own) as reply:
            lines = reply.aiter_lines()
            async with asyncio.timeout(5):
                beats = [await anext(lines) for _ in range(4)]
                assert [beat[:1] for beat in beats] == [":", "", ":", ""]
                gate.set()
                rest = [line async for line in lines]
        assert rest[0] == "id: 1"
        assert '"type":"error"' in rest[1]
