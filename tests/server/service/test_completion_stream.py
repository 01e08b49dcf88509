"""A streamed reply, from the engine's outputs to the client's bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.api import (
    Finish,
    FinishDetail,
    FinishType,
    OutputStream,
    RequestId,
    RequestOutput,
    Script,
    Usage,
)
from server.service.answer_pieces import Piece
from server.service.choice_streams import ChoiceStream
from server.service.completion_stream import StreamJob, stream_answer
from server.service.http import ClientGoneError, SlowClientError
from server.service.limits import ServiceLimits
from server.service.replies import ChatShape, ChunkEncoder, ReplyHead
from tests.server.service.harness import eventually, parse_event, parse_sse, serving, text_of
from tests.server.service.stream_client import StreamClient, turns

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

WAYS = [pytest.param(True, id="direct"), pytest.param(False, id="asgi")]
END = Finish(FinishDetail(FinishType.MAX_TOKENS), Usage(3, 2, 1))
FAILED = Finish(FinishDetail(FinishType.ERROR), message="The model failed.")


class Streamed:
    """`count` choices that are streamed to a client."""

    def __init__(
        self,
        count: int = 1,
        *,
        direct: bool = True,
        encoder: ChunkEncoder | None = None,
        **limits: Any,
    ) -> None:
        self.client = StreamClient()
        self.streams = [OutputStream(RequestId(f"{index}")) for index in range(count)]
        choices = [ChoiceStream(index, stream) for index, stream in enumerate(self.streams)]
        encoder = encoder or ChunkEncoder(
            ChatShape(), ReplyHead("chatcmpl-1", 1, "m"), includes_usage=True, num_choices=count
        )
        self.exchange = self.client.exchange(direct=direct)
        self.task = asyncio.create_task(
            stream_answer(self.exchange, StreamJob(encoder, choices), ServiceLimits(**limits))
        )

    def put(self, index: int, text: str, finish: Finish | None = None) -> None:
        self.streams[index].put(RequestOutput(RequestId(f"{index}"), text, finish=finish))

    async def ended(self) -> list[Finish]:
        async with asyncio.timeout(5):
            return await self.task


@pytest.mark.parametrize("direct", WAYS)
async def test_what_comes_in_one_turn_is_one_write(direct: bool) -> None:
    streamed = Streamed(direct=direct)
    await turns()
    tasks = asyncio.all_tasks()
    for text in ("a", "b", "c"):
        streamed.put(0, text)
        streamed.put(0, text.upper())
        await turns()
    assert asyncio.all_tasks() == tasks, "no task of a delta's own"
    assert len(streamed.client.writes) == 3
    streamed.put(0, "end", END)
    assert await streamed.ended() == [END]
    assert len(streamed.client.writes) == 4, "the last text, the end, the usage and [DONE] at once"
    assert streamed.client.is_complete
    events = parse_sse(streamed.client.body.decode())
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text_of(events) == "aAbBcCend"
    assert [event["choices"][0]["delta"]["content"] for event in events[1:4]] == ["aA", "bB", "cC"]
    assert events[-1]["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("direct", WAYS)
async def test_what_a_paused_client_does_not_take_merges(direct: bool) -> None:
    streamed = Streamed(direct=direct)
    streamed.put(0, "first ")
    await turns()
    streamed.client.pause()
    for number in range(100):
        streamed.put(0, f"{number} ")
        await turns()
    # What was on its way when the client paused is written; all later text waits in the mailbox.
    assert len(streamed.client.writes) <= 2
    assert streamed.streams[0].pending_chars > 250
    streamed.client.resume()
    await turns(10)
    assert streamed.streams[0].pending_chars == 0
    assert len(streamed.client.writes) <= 4
    streamed.put(0, "last", END)
    await streamed.ended()
    expected = "first " + "".join(f"{number} " for number in range(100)) + "last"
    assert text_of(parse_sse(streamed.client.body.decode())) == expected


moves = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.text("xé\u2028\n", max_size=3)),
        st.tuples(st.sampled_from(["pause", "resume", "turn"])),
    ),
    max_size=30,
)


@given(moves, st.booleans(), st.integers(1, 3), st.permutations(range(3)))
@example([("turn",), ("pause",)], True, 1, range(3))  # it resumes before the task has its turn
def test_nothing_is_lost_whatever_the_client_does(
    moves: list[tuple[Any, ...]], direct: bool, count: int, ends: Sequence[int]
) -> None:
    async def play() -> None:
        streamed = Streamed(count, direct=direct)
        sent = [""] * count
        for move in moves:
            match move:
                case ("put", index, text) if index < count:
                    sent[index] += text
                    streamed.put(index, text)
                case ("pause",):
                    streamed.client.pause()
                case ("resume",):
                    streamed.client.resume()
                case ("turn",):
                    await turns()
        for index in ends:
            if index < count:
                streamed.put(index, "!", END)
                await asyncio.sleep(0)
        streamed.client.resume()
        assert await streamed.ended() == [END] * count
        events = parse_sse(streamed.client.body.decode())
        assert [text_of(events, index) for index in range(count)] == [f"{text}!" for text in sent]
        for index in range(count):
            own = [
                choice
                for event in events
                for choice in event["choices"]
                if choice["index"] == index
            ]
            assert own[0]["delta"].get("role") == "assistant"
            assert [bool(choice["finish_reason"]) for choice in own] == [False] * (len(own) - 1) + [
                True
            ]
        assert events[-1]["choices"] == []
        assert all("usage" in event for event in events)

    asyncio.run(play())


@pytest.mark.parametrize("direct", WAYS)
async def test_a_client_that_takes_nothing_is_given_up(direct: bool) -> None:
    streamed = Streamed(direct=direct, send_timeout_s=0.05)
    streamed.put(0, "a")
    await turns()
    streamed.client.pause()
    streamed.put(0, "b")
    await turns()
    streamed.put(0, "c")
    with pytest.raises(SlowClientError):
        await streamed.ended()
    streamed.streams[0].follow(lambda: None)  # nobody else does any more


async def test_a_client_that_does_not_take_the_end_is_given_up() -> None:
    streamed = Streamed(send_timeout_s=0.05)
    streamed.client.pause()
    streamed.put(0, "a", END)
    with pytest.raises(SlowClientError):
        await streamed.ended()


async def test_a_client_that_has_left_ends_the_reply() -> None:
    streamed = Streamed()
    streamed.put(0, "a")
    await turns()
    streamed.client.leave()
    streamed.put(0, "b")
    with pytest.raises(ClientGoneError):
        await streamed.ended()
    assert len(streamed.client.writes) == 1


async def test_a_client_that_leaves_while_it_is_full_ends_the_reply() -> None:
    streamed = Streamed()
    await turns()
    streamed.client.pause()
    streamed.put(0, "a")
    await turns()
    streamed.client.leave()
    with pytest.raises((ClientGoneError, ConnectionError)):
        await streamed.ended()


@pytest.mark.parametrize("direct", WAYS)
async def test_a_failure_is_told_behind_the_text_before_it(direct: bool) -> None:
    streamed = Streamed(2, direct=direct)
    await turns()
    streamed.put(0, "a", END)
    streamed.put(1, "b")
    await turns()
    streamed.put(1, "c", FAILED)
    assert await streamed.ended() == [END]
    *frames, error, rest = streamed.client.body.decode().split("\n\n")
    assert rest == ""
    assert parse_event(error)["error"]["message"] == "The model failed."
    assert text_of([parse_event(frame) for frame in frames], 1) == "bc"
    assert streamed.client.is_complete


async def test_an_encoder_that_fails_fails_its_own_reply_only() -> None:
    class Failing(ChunkEncoder):
        def piece(self, index: int, piece: Piece) -> bytes:
            raise ZeroDivisionError

    head = ReplyHead("chatcmpl-1", 1, "m")
    streamed = Streamed(encoder=Failing(ChatShape(), head, includes_usage=False))
    streamed.put(0, "a")
    with pytest.raises(ZeroDivisionError):
        await streamed.ended()


async def test_a_reply_that_is_cancelled_writes_nothing_more() -> None:
    streamed = Streamed()
    streamed.put(0, "a")
    await turns()
    streamed.task.cancel()
    streamed.put(0, "b")
    with pytest.raises(asyncio.CancelledError):
        await streamed.task
    await turns()
    assert len(streamed.client.writes) == 1


async def test_an_engine_error_in_one_stream_leaves_its_neighbour_alone() -> None:
    """SSE-03, as bytes on the line."""
    script = Script(
        answer=lambda prompt: "aaaabbbbccccdddd" if "bad" in prompt else "x" * 80,
        token_s=0.01,
        fail_after=3,
    )
    async with serving(script) as server:
        beside = asyncio.create_task(server.chat("good", stream=True, max_tokens=3))
        response = await server.chat("bad", stream=True, max_tokens=16)
        raw = response.content.decode()
        other = await beside
        assert (await server.http.get("/health")).status_code == 200
        plain = await server.chat("good", max_tokens=3)
    assert response.status_code == 200
    *frames, last, rest = raw.split("\n\n")
    assert rest == ""
    events = [parse_event(frame) for frame in frames]
    assert text_of(events) == "aaaabbbbcccc"
    assert len(events) <= 4, "the role, and three tokens"
    assert {event["choices"][0]["finish_reason"] for event in events} == {None}
    error = json.loads(last.removeprefix("data: "))["error"]
    assert error["type"] == "server_error"
    assert error["code"]
    assert "/" not in error["message"]
    assert "Traceback" not in error["message"]
    events = parse_sse(other.text)
    assert text_of(events) == "x" * 12
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    assert plain.status_code == 200


async def test_text_that_may_be_a_stop_string_is_not_sent() -> None:
    """What was sent joins to the text without it: nothing was to be taken back."""
    tokens = [b"one ", b"tw", b"o ST", b"O", b"P three"]
    script = Script(answer=lambda _: tokens, token_s=0.02)
    async with serving(script) as server:
        events = await server.stream(stop=["STOP"])
    deltas = [event["choices"][0]["delta"]["content"] for event in events]
    assert "".join(deltas) == "one two "
    assert events[-1]["choices"][0]["finish_reason"] == "stop"


async def test_a_client_that_leaves_frees_the_engine_within_two_steps() -> None:
    """Counted from when it leaves; `test_aborts` counts from when that is noticed."""
    script = Script(answer=lambda _: "x" * 40_000, token_s=0.25)
    async with serving(script) as server:
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "n": 3}
        async with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                if '"content":"xxxx"' in line:
                    break
        left_at = server.engine.stats.num_steps
        await eventually(lambda: server.engine.num_requests == 0)
        # One is under way when the client leaves; the abort comes in front of the next but one.
        assert server.engine.stats.num_steps - left_at <= 2
        assert server.engine.stats.used_blocks == 0
