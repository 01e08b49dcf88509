"""SSE: what goes in as text comes out as text, for every kind of line reader; and no silence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Finish, FinishDetail, FinishType, Usage
from server.service.answer_pieces import Piece
from server.service.errors import InternalError
from server.service.event_encoder import EventEncoder
from server.service.fan_out import FanOut, Watched
from server.service.http import SlowClientError
from server.service.limits import ServiceLimits
from server.service.replies import ChatShape, ChunkEncoder, ReplyHead, TextShape
from server.service.sse import run_frame, send_events
from tests.server.service.harness import eventually, parse_event, parse_sse, text_of
from tests.server.service.stream_client import StreamClient, turns

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


def test_reasoning_stands_apart_from_the_answer() -> None:
    chat = ChunkEncoder(ChatShape(), HEAD, includes_usage=False)
    for piece, delta in (
        (Piece(reasoning="a"), {"reasoning_content": "a"}),
        (Piece("b", "a"), {"reasoning_content": "a", "content": "b"}),
        (Piece("b"), {"content": "b"}),
    ):
        assert parse_event(chat.piece(0, piece).decode().rstrip())["choices"][0]["delta"] == delta
    last = chat.last([FINISH.usage], 2)
    assert last == b"data: [DONE]\n\n"
    told = ChunkEncoder(ChatShape(), HEAD, includes_usage=True).last([FINISH.usage], 2)
    usage = parse_event(told.decode().split("\n\n")[0])["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 2}


def test_error_frame() -> None:
    encoder = ChunkEncoder(ChatShape(), HEAD, includes_usage=True)
    error = parse_event(encoder.error(InternalError("It\nbroke.")).decode().rstrip())["error"]
    assert error == {
        "message": "It\nbroke.",
        "type": "server_error",
        "param": None,
        "code": "internal",
    }


class Frames:
    """An `EventSource` that a test fills."""

    def __init__(self) -> None:
        self.is_done = False
        self._waiting = b""
        self._is_ending = False
        self._on_ready: Callable[[], None] | None = None

    def put(self, frames: bytes, *, is_last: bool = False) -> None:
        self._waiting += frames
        self._is_ending = is_last
        if self._on_ready is not None:
            self._on_ready()

    def take(self) -> bytes:
        frames, self._waiting = self._waiting, b""
        self.is_done = self._is_ending
        return frames

    def follow(self, on_ready: Callable[[], None]) -> None:
        self._on_ready = on_ready
        if self._waiting:
            on_ready()

    def unfollow(self) -> None:
        self._on_ready = None

    @property
    def has_follower(self) -> bool:
        return self._on_ready is not None


HEARTBEAT = b": waiting\n\n"
WAYS = [pytest.param(True, id="direct"), pytest.param(False, id="asgi")]


@pytest.mark.anyio
@pytest.mark.one_loop
@pytest.mark.parametrize("direct", WAYS)
async def test_a_heartbeat_comes_wherever_a_stream_is_silent(direct: bool) -> None:
    client, frames = StreamClient(), Frames()
    exchange = client.exchange(direct=direct, fan_out=FanOut(tick_s=0.01))
    before = asyncio.all_tasks()
    sending = asyncio.create_task(send_events(exchange, frames, ServiceLimits(heartbeat_s=0.03)))
    await eventually(lambda: HEARTBEAT in client.writes)
    frames.put(b"data: 1\n\n")
    await turns()
    num_written = len(client.writes)
    assert client.writes[-1] == b"data: 1\n\n"
    await eventually(lambda: len(client.writes) >= num_written + 2)
    assert set(client.writes[num_written:]) == {HEARTBEAT}
    frames.put(b"data: 2\n\n", is_last=True)
    async with asyncio.timeout(5):
        await sending
    assert client.body.replace(HEARTBEAT, b"") == b"data: 1\n\ndata: 2\n\n"
    assert client.is_complete
    assert exchange.status == 200
    assert not frames.has_follower
    assert asyncio.all_tasks() == before
    num_written = len(client.writes)
    await asyncio.sleep(0.08)
    assert len(client.writes) == num_written, "nothing behind the end"


class HandTickedFanOut(FanOut):
    """The test says what time it is."""

    def __init__(self) -> None:
        super().__init__()
        self._told: list[Watched] = []

    def watch(self, item: Watched) -> None:
        self._told.append(item)

    def tick_all(self, now_s: float) -> None:
        for item in self._told:
            item.tick(now_s)


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_a_stream_that_speaks_has_no_heartbeat() -> None:
    client, frames, fan_out = StreamClient(), Frames(), HandTickedFanOut()
    exchange = client.exchange(direct=True, fan_out=fan_out)
    sending = asyncio.create_task(send_events(exchange, frames, ServiceLimits(heartbeat_s=5)))
    for now_s in range(0, 40, 4):
        frames.put(b"%d" % now_s)
        await turns()
        fan_out.tick_all(now_s)
    assert HEARTBEAT not in client.writes
    fan_out.tick_all(36 + 5)
    assert client.writes[-1] == HEARTBEAT
    frames.put(b"end", is_last=True)
    async with asyncio.timeout(5):
        await sending


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_a_client_that_takes_nothing_gets_no_heartbeats_either() -> None:
    client, frames = StreamClient(), Frames()
    exchange = client.exchange(direct=True, fan_out=FanOut(tick_s=0.005))
    limits = ServiceLimits(heartbeat_s=0.01, send_timeout_s=0.1)
    sending = asyncio.create_task(send_events(exchange, frames, limits))
    await turns()
    client.pause()
    with pytest.raises(SlowClientError):
        async with asyncio.timeout(5):
            await sending
    assert len(client.writes) <= 1
    assert not frames.has_follower


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_what_waits_before_the_reply_begins_is_sent_at_once() -> None:
    client, frames = StreamClient(), Frames()
    frames.put(b"all", is_last=True)
    async with asyncio.timeout(5):
        await send_events(client.exchange(direct=True), frames, ServiceLimits())
    assert client.writes == [b"all"]
    assert client.is_complete
