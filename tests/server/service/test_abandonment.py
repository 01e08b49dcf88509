"""`on_disconnect: abandon`: an answer that nobody comes back for ends; all others go on."""

from __future__ import annotations

import asyncio

import pytest

from engine.api import FinishType, Script
from server.service.limits import ServiceLimits
from server.service.runs import Run, RunRegistry
from tests.server.service.harness import Server, Socket, eventually, serving
from tests.server.service.socket_events import FINISH, ME

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

ENDLESS = Script(answer=lambda _: "word" * 2000, token_s=0.005)


async def chat(socket: Socket, id: str, on_disconnect: str | None) -> str:
    """Asks, and returns the run as soon as it has text."""
    policy = {} if on_disconnect is None else {"on_disconnect": on_disconnect}
    messages = [{"role": "user", "content": id}]
    await socket.send("chat", id=id, messages=messages, **policy)
    run = ""
    while True:
        event = await socket.receive()
        if event.get("id") == id:
            run = event["run"]
        if event["type"] == "delta" and event["run"] == run:
            return run


def found(server: Server, run_id: str) -> Run:
    run = server.service.runs.get(run_id)
    assert run is not None
    return run


async def test_only_what_is_abandoned_ends_with_its_socket() -> None:
    limits = ServiceLimits(abandon_grace_s=0)
    async with serving(ENDLESS, limits=limits) as server:
        async with server.socket() as socket:
            session = (await socket.hello())["session"]
            abandoned = found(server, await chat(socket, "q1", "abandon"))
            kept = [
                found(server, await chat(socket, id, p)) for id, p in (("q2", "keep"), ("q3", None))
            ]
            assert not abandoned.is_finished
        await eventually(lambda: abandoned.is_finished)
        assert abandoned.cancel_detail is FinishType.CLIENT_GONE
        await eventually(lambda: server.num_busy == 2)
        assert [run.is_finished for run in kept] == [False, False]
        async with server.socket() as socket:
            await socket.hello(token=session)
            await socket.send("attach", run=abandoned.id)
            finish = (await socket.answer())[-1]
            assert (finish["type"], finish["finish_reason"]) == ("finish", "abort")
            assert finish["finish_detail"] == {"type": "client_gone"}
            for run in kept:
                run.cancel()


async def test_whoever_comes_back_in_time_keeps_the_answer() -> None:
    """Another socket, and a reader over SSE, count as well as the first."""
    limits = ServiceLimits(abandon_grace_s=0.8)
    async with serving(ENDLESS, limits=limits) as server:
        async with server.socket() as socket:
            session = (await socket.hello())["session"]
            run = found(server, await chat(socket, "q1", "abandon"))
        path, own = f"/v1/runs/{run.id}/events", {"authorization": f"Bearer {session}"}
        async with server.http.stream("GET", path, headers=own):
            await eventually(lambda: run.num_readers == 1)
            await asyncio.sleep(0.9)  # longer than the grace: that time is what is tested
            assert run.cancel_detail is None
            async with server.socket() as socket:
                resume = [{"run": run.id, "after_seq": run.last_seq}]
                await socket.hello(token=session, resume=resume)
                await socket.until("delta")
                assert run.num_readers == 2
        await eventually(lambda: run.is_finished)
        assert run.cancel_detail is FinishType.CLIENT_GONE
        await server.until_idle()


async def test_a_repeated_message_says_again_what_is_wanted() -> None:
    limits = ServiceLimits(abandon_grace_s=0)
    async with serving(ENDLESS, limits=limits) as server:
        async with server.socket() as socket:
            await socket.hello()
            run = found(server, await chat(socket, "q1", "abandon"))
            await socket.send("chat", id="q1", messages=[], on_disconnect="keep")
            await socket.send("ping", id="p")
            await socket.until("pong")
        await eventually(lambda: server.service.sockets.num_sessions == 0)
        assert run.cancel_detail is None
        run.cancel()


async def test_an_unknown_policy_is_named(server: Server) -> None:
    async with server.socket() as socket:
        await socket.hello()
        await socket.send("chat", id="q", messages=[], on_disconnect="perhaps")
        error = await socket.receive()
        assert (error["id"], error["code"], error["param"]) == ("q", "bad_request", "on_disconnect")


async def test_a_run_that_has_ended_is_not_ended_again() -> None:
    runs = RunRegistry(ServiceLimits())

    async def produce(run: Run) -> None:
        run.emit("finish", **FINISH)

    run = runs.open(ME, produce)
    reader = run.follow(0, lambda: None)
    run.abandon_after(0)
    await eventually(lambda: run.is_finished)
    reader.close()
    run.abandon_after(0)
    await asyncio.sleep(0.01)  # a timer that was left would have fired
    assert run.cancel_detail is None
    await runs.shutdown(1)
