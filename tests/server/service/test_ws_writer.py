"""`SocketWriter`: at any pace of the client everything arrives once and in order, then the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.service.auth import UserId
from server.service.events import to_json
from server.service.fan_out import FanOut
from server.service.http import Message, SlowClientError
from server.service.limits import ServiceLimits
from server.service.run import Run
from server.service.ws_writer import SocketWriter
from tests.server.service.harness import Json
from tests.server.service.socket_events import FINISH

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


class PacedWire:
    """A connection whose client takes what is written, or does not."""

    def __init__(self) -> None:
        self.received: list[Json] = []
        self.num_writes = 0
        self.closed: tuple[int, str] | None = None
        self._room = asyncio.Event()
        self._room.set()

    is_gone = False

    @property
    def is_full(self) -> bool:
        return not self._room.is_set()

    def stall(self) -> None:
        self._room.clear()

    def go_on(self) -> None:
        self._room.set()

    def write_texts(self, messages: Sequence[bytes]) -> None:
        assert not self.is_full, "nothing is written to a client that is behind"
        assert self.closed is None
        self.num_writes += 1
        self.received += [json.loads(message) for message in messages]

    async def drained(self) -> None:
        await self._room.wait()

    def abort(self) -> None: ...

    async def send(self, message: Message) -> None:
        assert message["type"] == "websocket.close"
        self.closed = (message["code"], message["reason"])


def writer_of(wire: PacedWire, limits: ServiceLimits | None = None) -> SocketWriter:
    return SocketWriter(wire.send, FanOut(), limits or ServiceLimits(), lambda: False)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


Move = tuple[str, int]
moves = st.lists(
    st.tuples(
        st.sampled_from(["delta", "delta", "tell", "stall", "go on", "turn"]), st.integers(0, 3)
    ),
    max_size=60,
)


@given(moves)
async def test_everything_arrives_once_at_any_pace(played: list[Move]) -> None:
    wire = PacedWire()
    writer = writer_of(wire)
    serving = asyncio.create_task(writer.serve())
    runs = [Run(f"run_{number}", UserId("me-me-me"), None, 4096) for number in range(2)]
    for run in runs:
        writer.follow(run, 0)
    told = 0
    for kind, number in played:
        match kind:
            case "delta":
                for _ in range(40 if number == 3 else 1):
                    runs[number % 2].emit_delta("abc")
            case "tell":
                writer.tell(to_json({"type": "pong", "id": told}))
                told += 1
            case "stall":
                wire.stall()
            case "go on":
                wire.go_on()
            case _:
                await turns(number)
    for run in runs:
        run.emit("finish", **FINISH)
    writer.close(1001, "bye")
    wire.go_on()
    async with asyncio.timeout(5):
        await serving
    assert wire.closed == (1001, "bye")
    assert writer.num_following == 0
    assert [m["id"] for m in wire.received if m["type"] == "pong"] == list(range(told))
    for run in runs:
        text, seq = "", 0
        for event in wire.received:
            if event.get("run") != run.id:
                continue
            if event["type"] == "snapshot":
                text = event["text"]
            else:
                assert event["seq"] == seq + 1
                text += event.get("text", "")
            seq = event["seq"]
        assert seq == run.last_seq
        assert text == run.text


async def test_all_runs_of_a_turn_are_one_write() -> None:
    wire = PacedWire()
    writer = writer_of(wire)
    runs = [Run(f"run_{number}", UserId("me-me-me"), None, 4096) for number in range(5)]
    for run in runs:
        writer.follow(run, 0)
    for turn in range(3):
        for run in runs:
            run.emit_delta(f"{turn} ")
        await turns(2)
        assert wire.num_writes == turn + 1
        assert len(wire.received) == 5 * (turn + 1)


async def test_a_client_that_goes_on_before_anybody_waits_for_it() -> None:
    """The flush found it behind; the task that was to wait for it found it ready."""
    wire = PacedWire()
    writer = writer_of(wire)
    serving = asyncio.create_task(writer.serve())
    run = Run("run_1", UserId("me-me-me"), None, 4096)
    writer.follow(run, 0)
    await turns(3)
    run.emit_delta("a")
    wire.stall()
    await turns(1)
    wire.go_on()
    await turns(3)
    run.emit_delta("b")
    await turns(3)
    assert [event["text"] for event in wire.received] == ["a", "b"]
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_a_client_that_takes_nothing_is_given_up() -> None:
    wire = PacedWire()
    writer = writer_of(wire, ServiceLimits(send_timeout_s=0.05))
    writer.tell(b"{}")
    await turns(2)
    wire.stall()
    writer.tell(b"{}")
    async with asyncio.timeout(5):
        with pytest.raises(SlowClientError):
            await writer.serve()
    assert wire.received == [{}]


async def test_replies_that_are_not_read_close_as_overload() -> None:
    wire = PacedWire()
    writer = writer_of(wire, ServiceLimits(max_outbox_messages=3))
    wire.stall()
    serving = asyncio.create_task(writer.serve())
    for _ in range(4):
        writer.tell(b"{}")
    await turns(3)
    wire.go_on()
    async with asyncio.timeout(5):
        await serving
    assert wire.closed == (1013, "replies are not read; retry after 1000 ms")
    assert wire.received == []
