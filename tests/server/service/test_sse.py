"""SSE framing: what goes in as text comes out as text, for every kind of line reader."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from engine.api import Finish, FinishDetail, FinishType, Usage
from server.service.answer_pieces import Piece
from server.service.errors import InternalError
from server.service.events import EventEncoder
from server.service.replies import ChatShape, ChunkEncoder, ReplyHead, TextShape
from server.service.sse import run_frame
from tests.server.service.harness import parse_event, parse_sse, text_of

SEPARATORS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
texts = st.lists(
    st.text(st.one_of(st.sampled_from(SEPARATORS + '"\\\0'), st.characters(codec="utf-8"))),
    max_size=8,
)
HEAD = ReplyHead("chatcmpl-1", 1, 'a "model"\u2028')
FINISH = Finish(FinishDetail(FinishType.STOP_STRING, "\u2028stop"), Usage(3, 4, 2))


@given(texts, st.booleans())
def test_round_trip(pieces: list[str], includes_usage: bool) -> None:
    encoder = ChunkEncoder(ChatShape(), HEAD, includes_usage=includes_usage)
    frames = [encoder.opening(0), *(encoder.piece(0, Piece(text)) for text in pieces)]
    frames.append(encoder.finish(0, FINISH, FINISH.detail.to_json()))
    frames.append(encoder.last([FINISH.usage], 0))
    raw = b"".join(frames).decode()
    assert not set(raw) & set(SEPARATORS) - {"\n"}
    events = parse_sse(raw)
    # A reader that splits at everything Python calls a line end sees the same events.
    lines = [line for line in raw.splitlines() if line]
    assert [json.loads(line[6:]) for line in lines[:-1]] == events
    assert text_of(events) == "".join(pieces)
    assert {event["model"] for event in events} == {HEAD.model}
    ended = events[-2 if includes_usage else -1]["choices"][0]
    assert ended["finish_reason"] == "stop"
    assert ended["finish_detail"] == {"type": "stop_string", "matched": "\u2028stop"}
    assert all(("usage" in event) == includes_usage for event in events)


@given(texts)
def test_run_events_keep_their_text(pieces: list[str]) -> None:
    encoder = EventEncoder("run_1")
    for seq, piece in enumerate(pieces, 1):
        event = encoder.delta(seq, piece)
        assert json.loads(event.data) == {
            "type": "delta",
            "run": "run_1",
            "seq": seq,
            "text": piece,
        }
        number, data, *rest = run_frame(event).decode().split("\n")
        assert number == f"id: {seq}"
        assert rest == ["", ""]
        assert data.splitlines() == [data]


def test_the_openings_tell_a_lowered_limit() -> None:
    head = ReplyHead("cmpl-1", 1, "m", lowered=7)
    chat = ChunkEncoder(ChatShape(), head, includes_usage=False)
    assert parse_event(chat.opening(2).decode().rstrip())["max_tokens"] == 7
    text = ChunkEncoder(TextShape(), head, includes_usage=False)
    assert text.opening(0) == b""
    last = parse_event(text.finish(0, FINISH, {}).decode().rstrip())
    assert (last["max_tokens"], last["max_tokens_lowered"]) == (7, True)
    assert last["choices"][0]["text"] == ""


def test_error_frame() -> None:
    encoder = ChunkEncoder(ChatShape(), HEAD, includes_usage=True)
    error = parse_event(encoder.error(InternalError("It\nbroke.")).decode().rstrip())["error"]
    assert error == {
        "message": "It\nbroke.",
        "type": "server_error",
        "param": None,
        "code": "internal",
    }
