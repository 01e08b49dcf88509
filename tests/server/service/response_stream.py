"""How a stream of `POST /v1/responses` is read."""

from __future__ import annotations

import json

from tests.server.service.harness import Json

TERMINAL = ("response.completed", "response.incomplete", "response.failed")


def events_of(raw: str) -> list[Json]:
    """The events of a whole stream; checks their framing, their numbers and their one end."""
    blocks = raw.split("\n\n")
    assert blocks.pop() == ""
    events = []
    for block in blocks:
        name, data = block.splitlines()
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events if event["type"] in TERMINAL] == [events[-1]["type"]]
    return events
