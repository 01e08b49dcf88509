"""A reader by the HTML standard: of a run's events, with reconnection, and of streamed answers."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.clients.event_source import EventSourceReader, StreamEvent

pytestmark = pytest.mark.client

WORDS = "one two three " * 40


@pytest.mark.parametrize(
    ("raw", "events", "last_event_id"),
    [
        (b"data: a\n\ndata: b\r\rdata:\r\n\r\n", [("message", x) for x in ("a", "b", "")], ""),
        (b"\xef\xbb\xbfdata:a\ndata: b\n\n", [("message", "a\nb")], ""),
        (b": comment\n\nevent: e\nid: 7\ndata: x\n\ndata\n\n", [("e", "x"), ("message", "")], "7"),
        (b"id: 1\n\nid\ndata: y\n\n", [("message", "y")], ""),
        (b"data:  two\nretry: 5\nfoo: bar\n\ndata: unfinished", [("message", " two")], ""),
        ("data: \u2028é\n\n".encode(), [("message", "\u2028é")], ""),
    ],
)  # fmt: skip
def test_the_reader_reads_as_the_standard_says(
    raw: bytes, events: list[tuple[str, str]], last_event_id: str
) -> None:
    for size in (1, 2, len(raw)):
        reader = EventSourceReader()
        found = [
            (event.type, event.data)
            for start in range(0, len(raw), size)
            for event in reader.feed(raw[start : start + size])
        ]
        assert found == events
        assert reader.last_event_id == last_event_id


def read(
    address: str,
    path: str,
    *,
    body: Any = None,
    headers: dict[str, str] | None = None,
    most: int | None = None,
    last_event_id: str = "",
) -> tuple[list[StreamEvent], EventSourceReader]:
    """The events of one connection, byte by byte; it is dropped after `most` events."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
    sent = {"Accept": "text/event-stream", **(headers or {})}
    if last_event_id:
        sent["Last-Event-ID"] = last_event_id
    method = "GET" if body is None else "POST"
    connection.request(method, path, None if body is None else json.dumps(body), sent)
    reply = connection.getresponse()
    assert reply.status == 200
    assert reply.headers.get_content_type() == "text/event-stream"
    reader = EventSourceReader(last_event_id)
    events: list[StreamEvent] = []
    while (most is None or len(events) < most) and (byte := reply.read(1)):
        events += reader.feed(byte)
    connection.close()
    return events, reader


def ask(socket: ClientConnection, text: str) -> tuple[Any, str]:
    """Asks for a run; its first event, and the session that may read it."""
    socket.send(json.dumps({"type": "hello"}))
    session = json.loads(socket.recv(10))["session"]
    messages = [{"role": "user", "content": text}]
    socket.send(json.dumps({"type": "chat", "id": "q1", "messages": messages}))
    return json.loads(socket.recv(10)), session


def test_a_run_s_events_over_connections_that_break(address: str) -> None:
    """Each connection goes on where the last one broke; the socket meanwhile hears the same."""
    with connect(f"ws://{address.removeprefix('http://')}/ws/v1", proxy=None) as socket:
        accepted, session = ask(socket, WORDS)
        path = f"/v1/runs/{accepted['run']}/events"
        found: list[StreamEvent] = []
        last_event_id = ""
        while not found or json.loads(found[-1].data)["type"] != "finish":
            bearer = {"Authorization": f"Bearer {session}"}
            events, reader = read(
                address, path, headers=bearer, most=7, last_event_id=last_event_id
            )
            assert events
            found += events
            last_event_id = reader.last_event_id
        heard = [accepted]
        while heard[-1]["type"] != "finish":
            heard.append(json.loads(socket.recv(10)))
    told = [json.loads(event.data) for event in found]
    assert [event["seq"] for event in told] == list(range(1, len(told) + 1))
    assert [event.last_event_id for event in found] == [str(event["seq"]) for event in told]
    assert {event.type for event in found} == {"message"}
    assert heard[-1] == told[-1]
    text = "".join(event["text"] for event in told if event["type"] == "delta")
    assert text == f"You asked: {WORDS.strip()}"


def test_a_streamed_chat(address: str) -> None:
    body = {"messages": [{"role": "user", "content": WORDS}], "stream": True}
    events, _ = read(address, "/v1/chat/completions", body=body)
    assert events.pop().data == "[DONE]"
    deltas = [json.loads(event.data)["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("content") or "" for delta in deltas) == f"You asked: {WORDS.strip()}"


def test_a_streamed_response_names_its_events(address: str) -> None:
    events, _ = read(address, "/v1/responses", body={"input": WORDS, "stream": True})
    told = [json.loads(event.data) for event in events]
    assert [event.type for event in events] == [event["type"] for event in told]
    assert events[-1].type == "response.completed"
    text = "".join(event.get("delta", "") for event in told)
    assert text == f"You asked: {WORDS.strip()}"
