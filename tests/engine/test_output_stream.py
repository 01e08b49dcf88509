from __future__ import annotations

import asyncio

import pytest

from engine.output_stream import OutputStream
from engine.types import Finish, FinishDetail, FinishType, RequestId, RequestOutput

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
