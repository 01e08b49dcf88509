"""What the tests of runs and of `/ws/v1` share: a slow answer, an end, and how to read events."""

from __future__ import annotations

import asyncio
import threading

from engine.api import Script
from server.service.auth import UserId
from server.service.events import EVENT_FIELDS, OPTIONAL_FIELDS
from tests.server.service.harness import PATIENCE_S, Json, Socket

ME = UserId("me-me-me")
FINISH = {
    "finish_reason": "stop",
    "finish_detail": {"type": "eos"},
    "usage": {},
    "timing": {},
    "can_continue": False,
}
SLOW_TEXT = "".join(f"{n:03d} " for n in range(100))
SLOW = Script(answer=lambda _: SLOW_TEXT, token_s=0.004)


def held(text: str, gate: threading.Event) -> Script:
    """Each prefill takes until `gate` is open; then comes `text`."""

    def answer(_prompt: str) -> str:
        return text if gate.wait(PATIENCE_S) else "nobody opened the gate"

    return Script(answer=answer)


def text_in(events: list[Json]) -> str:
    """What a client shows after these events."""
    text = ""
    for event in events:
        if event["type"] == "snapshot":
            text = event["text"]
        elif event["type"] == "delta":
            text += event["text"]
    return text


def check_run(events: list[Json]) -> None:
    """Numbers without a gap, the fields of each type, one end."""
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert len({event["run"] for event in events}) == 1
    for event in events:
        check_fields(event)
    assert [event["type"] in ("finish", "error") for event in events].count(True) == 1
    assert events[-1]["type"] in ("finish", "error")


def check_fields(event: Json) -> None:
    """All fields that an event of its type must have, and no field that is not documented."""
    must = set(EVENT_FIELDS[event["type"]])
    assert must <= event.keys()
    may = set(OPTIONAL_FIELDS.get(event["type"], ()))
    assert event.keys() - must - may == {"type", "run", "seq"}


async def close_code(socket: Socket) -> int | None:
    """Waits for the end of the connection."""
    async with asyncio.timeout(PATIENCE_S):
        await socket.connection.wait_closed()
    return socket.connection.close_code
