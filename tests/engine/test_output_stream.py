from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import StreamBusyError
from engine.output_stream import OutputStream
from engine.types import (
    Finish,
    FinishDetail,
    FinishType,
    RequestId,
    RequestOutput,
    TokenLogprobs,
)

pytestmark = pytest.mark.anyio
ID = RequestId("r")
END = Finish(FinishDetail(FinishType.EOS))


def delta(text: str, finish: Finish | None = None) -> RequestOutput:
    return RequestOutput(ID, text, finish=finish)


async def test_merges_what_the_reader_has_not_taken() -> None:
    stream = OutputStream(ID)
    for text in "abc":
        stream.put(delta(text))
    assert stream.pending_chars == 3
    got = await stream.get()
    assert got is not None
    assert got.text == "abc"
    assert stream.pending_chars == 0


async def test_deltas_of_several_tokens_merge_in_order_and_log_probabilities_count() -> None:
    """A slow reader of twenty alternatives a token costs far more than its text."""
    stream = OutputStream(ID)
    entries = [TokenLogprobs(i, -0.1 * i, tuple((j, -1.0) for j in range(20))) for i in range(4)]
    stream.put(RequestOutput(ID, "a", (0,), logprobs=(entries[0],)))
    few = stream.pending_chars
    stream.put(RequestOutput(ID, "bcd", (1, 2, 3), logprobs=tuple(entries[1:])))
    assert few > 20 * 10
    assert stream.pending_chars == 4 * few
    got = await stream.get()
    assert got is not None
    assert (got.text, got.token_ids) == ("abcd", (0, 1, 2, 3))
    assert got.logprobs == tuple(entries)
    assert stream.pending_chars == 0


async def test_wakes_a_waiting_reader() -> None:
    stream = OutputStream(ID)
    reader = asyncio.create_task(stream.get())
    await asyncio.sleep(0)
    stream.put(delta("a"))
    got = await reader
    assert got is not None
    assert got.text == "a"


async def test_nothing_comes_after_the_end() -> None:
    stream = OutputStream(ID)
    stream.put(delta("a", END))
    stream.put(delta("b"))
    outputs = [output async for output in stream]
    assert [(output.text, output.finish) for output in outputs] == [("a", END)]
    assert await stream.get() is None
    assert await stream.get() is None


async def test_a_cancelled_read_loses_nothing() -> None:
    stream = OutputStream(ID)
    reader = asyncio.create_task(stream.get())
    await asyncio.sleep(0)
    stream.put(delta("a"))
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    got = await stream.get()
    assert got is not None
    assert got.text == "a"


class Follower:
    """Takes when it is told to, or later."""

    def __init__(self, stream: OutputStream) -> None:
        self.num_calls = 0
        self.taken: list[RequestOutput] = []
        self._stream = stream

    def on_ready(self) -> None:
        self.num_calls += 1

    def take(self) -> None:
        output = self._stream.take()
        if output is not None:
            self.taken.append(output)


def test_a_follower_is_told_once_until_it_takes() -> None:
    stream = OutputStream(ID)
    follower = Follower(stream)
    stream.follow(follower.on_ready)
    assert follower.num_calls == 0
    for text in "abc":
        stream.put(delta(text))
    assert follower.num_calls == 1
    follower.take()
    assert [output.text for output in follower.taken] == ["abc"]
    assert stream.pending_chars == 0
    stream.put(delta("d"))
    assert follower.num_calls == 2


def test_who_follows_late_is_told_at_once() -> None:
    stream = OutputStream(ID)
    stream.put(delta("a", END))
    follower = Follower(stream)
    stream.follow(follower.on_ready)
    assert follower.num_calls == 1
    follower.take()
    assert follower.taken == [delta("a", END)]
    stream.put(delta("b"))
    assert stream.take() is None
    assert follower.num_calls == 1


async def test_a_stream_has_one_reader() -> None:
    stream = OutputStream(ID)
    stream.follow(lambda: None)
    with pytest.raises(StreamBusyError):
        stream.follow(lambda: None)
    with pytest.raises(StreamBusyError):
        await stream.get()
    stream.unfollow()
    reader = asyncio.create_task(stream.get())
    await asyncio.sleep(0)
    with pytest.raises(StreamBusyError):
        stream.follow(lambda: None)
    stream.put(delta("a"))
    assert await reader == delta("a")


@given(st.lists(st.sampled_from(["put", "take", "follow", "unfollow", "end"]), max_size=40))
def test_however_it_is_read_nothing_is_lost_and_it_ends_once(moves: list[str]) -> None:
    stream = OutputStream(ID)
    follower = Follower(stream)
    is_following = False
    sent: list[str] = []
    has_ended = False
    for number, move in enumerate([*moves, "end", "take"]):
        num_calls, waited = follower.num_calls, stream.pending_chars
        match move:
            case "put" | "end":
                text = f"{number},"
                stream.put(delta(text, END if move == "end" else None))
                if not has_ended:
                    sent.append(text)
                    assert follower.num_calls - num_calls == (is_following and not waited)
                has_ended = has_ended or move == "end"
            case "take":
                follower.take()
                assert stream.pending_chars == 0
            case "follow" if not is_following:
                stream.follow(follower.on_ready)
                is_following = True
                assert follower.num_calls - num_calls == bool(waited)
            case "unfollow":
                stream.unfollow()
                is_following = False
    assert "".join(output.text for output in follower.taken) == "".join(sent)
    assert [output.finish for output in follower.taken if output.finish] == [END]
    assert follower.taken[-1].finish is END
    assert stream.take() is None
