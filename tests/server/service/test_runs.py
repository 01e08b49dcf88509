"""Runs: one task, one end, readers that come and go."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

import pytest

from engine.api import FinishType, OverloadedError
from server.service.admission import Ticket
from server.service.auth import UserId
from server.service.errors import (
    ConversationBusyError,
    NotFoundError,
    QueueFullError,
    RateLimitedError,
    ShuttingDownError,
)
from server.service.limits import ServiceLimits
from server.service.runs import Run, RunRegistry
from tests.server.service.harness import Json, eventually
from tests.server.service.socket_events import FINISH, ME

pytestmark = pytest.mark.anyio

YOU = UserId("you-you-you")


async def _events(run: Run, after_seq: int = 0) -> list[Json]:
    async with asyncio.timeout(5):
        return [json.loads(event.data) async for event in run.events(after_seq)]


async def _short(run: Run) -> None:
    run.emit("delta", text="a")
    run.emit("finish", **FINISH)


def _until(gate: asyncio.Event) -> Callable[[Run], Awaitable[None]]:
    async def produce(run: Run) -> None:
        run.emit("delta", text="a")
        await gate.wait()
        run.emit("finish", **FINISH)

    return produce


async def test_a_run_ends_once_whatever_happens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    async def refuses(run: Run) -> None:
        raise NotFoundError("No such course.", param="course")

    async def overloaded(run: Run) -> None:
        raise OverloadedError("full", retry_after_s=2.5)

    async def breaks(run: Run) -> None:
        run.emit("delta", text="a")
        raise KeyError("/secret/path")

    async def forgets(run: Run) -> None:
        run.emit("delta", text="a")

    async def breaks_late(run: Run) -> None:
        run.emit("finish", **FINISH)
        raise KeyError("late")

    runs = RunRegistry(ServiceLimits())
    ends = []
    for produce in (refuses, overloaded, breaks, forgets, breaks_late):
        events = await _events(runs.open(ME, produce, key=produce.__name__))
        assert [event["type"] in ("finish", "error") for event in events].count(True) == 1
        ends.append(events[-1])
    assert [end.get("code") for end in ends] == [
        "not_found",
        "queue_full",
        "internal",
        "internal",
        None,
    ]
    assert ends[0]["id"] == "refuses"
    assert ends[1]["retry_after_ms"] == 2500
    assert "secret" not in json.dumps(ends)
    await eventually(lambda: not runs.active(ME))


async def test_idempotency_is_per_owner() -> None:
    runs = RunRegistry(ServiceLimits())
    first = runs.open(ME, _short, key="k")
    assert runs.open(ME, _short, key="k") is first
    assert runs.open(YOU, _short, key="k") is not first
    assert runs.open(ME, _short) is not runs.open(ME, _short)
    await _events(first)
    assert runs.open(ME, _short, key="k") is first, "also after the end"
    assert len(await _events(first)) == 2
    await runs.shutdown(1)


async def test_a_refusal_opens_no_run_but_a_repeated_message_gets_its_own() -> None:
    is_full = False

    def admit(_owner: UserId) -> Ticket:
        if is_full:
            raise QueueFullError("full")
        return Ticket()

    runs = RunRegistry(ServiceLimits(), admit)
    first = runs.open(ME, _short, key="k")
    is_full = True
    assert runs.open(ME, _short, key="k") is first
    with pytest.raises(QueueFullError):
        runs.open(ME, _short, key="other", conversation="c")
    assert runs.active(ME) == [first]
    is_full = False
    assert (await _events(runs.open(ME, _short, key="other", conversation="c")))[-1]["seq"] == 2
    await runs.shutdown(1)


async def test_a_conversation_answers_one_question_at_a_time() -> None:
    runs = RunRegistry(ServiceLimits())
    gate = asyncio.Event()
    run = runs.open(ME, _until(gate), key="a", conversation="c")
    assert runs.active(ME) == [run]
    assert runs.active_in("c") is run
    with pytest.raises(ConversationBusyError):
        runs.open(ME, _short, key="b", conversation="c")
    assert runs.open(ME, _short, key="a", conversation="c") is run
    runs.open(ME, _short, conversation="d")
    gate.set()
    await _events(run)
    assert runs.active(ME) == []
    runs.open(ME, _short, key="b", conversation="c")
    await runs.shutdown(1)


async def test_logs_are_kept_for_their_time_and_number() -> None:
    limits = ServiceLimits(run_log_ttl_s=0.05, max_kept_runs=2)
    runs = RunRegistry(limits)
    ended = [runs.open(ME, _short, key=str(n)) for n in range(4)]
    await eventually(lambda: not runs.active(ME))
    assert [runs.get(run.id) for run in ended] == [None, None, *ended[2:]]
    await eventually(lambda: runs.get(ended[3].id) is None)
    assert runs.open(ME, _short, key="3") is not ended[3]
    await runs.shutdown(1)


async def test_cancel_reaches_the_generation_once() -> None:
    runs = RunRegistry(ServiceLimits())
    asked: list[FinishType] = []
    gate = asyncio.Event()

    async def produce(run: Run) -> None:
        with run.cancelling(asked.append):
            await gate.wait()
        run.emit("finish", **FINISH)

    run = runs.open(ME, produce)
    run.cancel()
    run.cancel(FinishType.SHUTDOWN)
    await asyncio.sleep(0)
    assert asked == [FinishType.CANCELLED], "a cancel before the generation began still counts"
    gate.set()
    await _events(run)
    run.cancel()
    assert asked == [FinishType.CANCELLED]


async def test_shutdown_leaves_no_run_without_an_end() -> None:
    runs = RunRegistry(ServiceLimits())
    polite_gate = asyncio.Event()

    async def polite(run: Run) -> None:
        with run.cancelling(lambda detail: polite_gate.set()):
            await polite_gate.wait()
        run.emit("finish", **FINISH)

    async def finished_in_time(run: Run) -> None:
        await asyncio.sleep(0)  # shutdown has begun to wait when this goes on
        run.emit("finish", **FINISH)

    quick, slow = runs.open(ME, finished_in_time), runs.open(ME, polite)
    await runs.shutdown(0.1)
    assert quick.is_finished
    assert quick.cancel_detail is None
    assert slow.is_finished
    assert slow.cancel_detail is FinishType.SHUTDOWN
    with pytest.raises(ShuttingDownError):
        runs.open(ME, _short)
    await runs.shutdown(0)


async def test_a_reader_that_stalls_holds_nobody_up() -> None:
    runs = RunRegistry(ServiceLimits(run_log_max_events=4))

    async def produce(run: Run) -> None:
        for number in range(50):
            run.emit("delta", text=f"{number} ")
            await asyncio.sleep(0)
        run.emit("finish", **FINISH)

    run = runs.open(ME, produce)
    stalled = run.events()
    first = await anext(stalled)
    assert first.text == "0 "
    await _events(run)
    rest = [json.loads(event.data) async for event in stalled]
    assert rest[0]["type"] == "snapshot"
    assert len(rest) <= 6
    assert rest[0]["text"] + "".join(event.get("text", "") for event in rest[1:]) == run.text


async def test_a_retryable_error_frees_its_key() -> None:
    """A message that was refused as retryable got the same refusal for ten minutes."""

    async def full(run: Run) -> None:
        raise QueueFullError("full")

    async def wrong(run: Run) -> None:
        raise NotFoundError("No such course.")

    runs = RunRegistry(ServiceLimits(max_kept_runs=2))
    refused = runs.open(ME, full, key="k")
    await _events(refused)
    await eventually(lambda: not runs.active(ME))
    again = runs.open(ME, _short, key="k")
    assert (await _events(again))[-1]["type"] == "finish"
    gone = runs.open(ME, wrong, key="other")
    await _events(gone)
    await eventually(lambda: not runs.active(ME))
    assert runs.open(ME, _short, key="other") is gone
    assert runs.get(refused.id) is None, "two ended runs are kept"
    assert runs.open(ME, _short, key="k") is again, "the key is the second run's"
    await runs.shutdown(1)


async def test_a_user_has_only_so_many_running() -> None:
    runs = RunRegistry(ServiceLimits(max_runs_per_user=2))
    gate = asyncio.Event()
    first = [runs.open(ME, _until(gate), key=name) for name in "ab"]
    with pytest.raises(RateLimitedError):
        runs.open(ME, _short)
    assert runs.open(ME, _short, key="a") is first[0], "a repeated message opens nothing"
    runs.open(YOU, _short)
    gate.set()
    await eventually(lambda: not runs.active(ME))
    runs.open(ME, _short)
    await runs.shutdown(1)


async def test_an_ended_run_keeps_one_text_once_everybody_has_read_it() -> None:
    """Every delta of every run stayed in memory for ten minutes: 1.5 MB for 5000 tokens."""
    runs = RunRegistry(ServiceLimits())

    async def produce(run: Run) -> None:
        for _ in range(1000):
            run.emit("delta", text="word")
        run.emit("finish", **FINISH)

    run = runs.open(ME, produce)
    slow = run.events()
    await anext(slow)
    await eventually(lambda: not runs.active(ME))
    rest = [event async for event in slow]
    assert len(rest) == 1000, "a reader that is under way gets every event"
    assert [event.type for event in run.read(0)] == ["snapshot", "finish"]
    assert run.text == "word" * 1000
    assert run.num_bytes < 10_000
    await runs.shutdown(1)


async def test_the_logs_of_ended_runs_are_bounded_by_bytes() -> None:
    runs = RunRegistry(ServiceLimits(max_kept_bytes=5000))

    async def produce(run: Run) -> None:
        run.emit("delta", text="x" * 1000)
        run.emit("finish", **FINISH)

    ended = []
    for _ in range(4):
        ended.append(runs.open(ME, produce))
        await eventually(lambda: not runs.active(ME))
    assert [runs.get(run.id) is None for run in ended] == [True, True, False, False]
    await runs.shutdown(1)


async def test_shutdown_is_bounded_whatever_a_run_waits_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a locked database SIGTERM took 91 s; its clients heard nothing for 61 s."""
    monkeypatch.setattr("server.service.runs._LAST_WORDS_S", 0.05)
    runs = RunRegistry(ServiceLimits())
    gate = asyncio.Event()

    async def stubborn(run: Run) -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    run = runs.open(ME, stubborn)
    async with asyncio.timeout(2):
        await runs.shutdown(0.05)
    (error,) = await _events(run)
    assert error["code"] == "shutting_down"
    assert run.id in caplog.text
    gate.set()
    await runs.shutdown(1)
