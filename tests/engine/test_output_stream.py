from __future__ import annotations

import asyncio

import pytest

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
