"""A WebSocket that reads too little: what it gets is bounded, right and without a gap."""

from __future__ import annotations

import asyncio
import json

import pytest

from server.service.limits import ServiceLimits
from server.service.run import Run
from tests.server.service.harness import Json, eventually, serving
from tests.server.service.raw_socket import FIN, TEXT, frame, raw_socket
from tests.server.service.socket_events import FINISH

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

NUM_DELTAS = 150_000


async def test_what_a_slow_reader_missed_comes_as_a_snapshot() -> None:
    """While it does not read, nothing is sent and nothing is kept but the log; then one snapshot
    stands for what it missed, and every later event follows."""
    limits = ServiceLimits(run_log_max_events=NUM_DELTAS + 2, max_messages_per_s=1000)
    is_read = asyncio.Event()

    async def produce(run: Run) -> None:
        for number in range(NUM_DELTAS):
            run.emit_delta(f"{number:06d} ")
            if number % 500 == 0:
                await asyncio.sleep(0)
        await is_read.wait()
        for number in range(NUM_DELTAS, NUM_DELTAS + 10):
            run.emit_delta(f"{number:06d} ")
            await asyncio.sleep(0)
        run.emit("finish", **FINISH)

    async with serving(limits=limits) as server:
        user, session = server.service.auth.new_session()
        run = server.service.runs.open(user, produce)
        port = server.port
        async with raw_socket(port, receive_buffer=4096) as slow:
            for message in (
                {"type": "hello", "token": session},
                {"type": "attach", "run": run.id, "after_seq": 0},
            ):
                await slow.write(frame(FIN | TEXT, json.dumps(message).encode()))
            await eventually(lambda: run.last_seq == NUM_DELTAS, 20)
            is_read.set()
            await eventually(lambda: run.is_finished)
            received = 0
            events: list[Json] = []
            async with asyncio.timeout(20):
                while not events or events[-1]["type"] != "finish":
                    _, payload = await slow.read()
                    received += len(payload)
                    events.append(json.loads(payload))
    events = [event for event in events if "seq" in event]
    text, seq = "", 0
    for event in events:
        if event["type"] == "snapshot":
            assert event["through_seq"] == event["seq"] > seq
            text = event["text"]
        else:
            assert event["seq"] == seq + 1, "no gap but by a snapshot"
            text += event.get("text", "")
        seq = event["seq"]
    assert text == "".join(f"{number:06d} " for number in range(NUM_DELTAS + 10))
    assert "snapshot" in {event["type"] for event in events}
    # Each event has a head of 75 bytes and a text of 7: the text alone is a tenth.
    assert received < NUM_DELTAS * 82 * 0.9, "less than every event takes"
