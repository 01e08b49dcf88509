"""Jobs beside the reading: in order, bounded, and gone when nobody waits any more."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from server.service.errors import RateLimitedError
from server.service.lane import Lane

pytestmark = pytest.mark.anyio


async def test_jobs_are_done_in_order_and_their_number_is_bounded() -> None:
    done: list[int] = []
    gate, idle = asyncio.Event(), asyncio.Event()

    async def job(n: int) -> None:
        await gate.wait()
        done.append(n)

    lane = Lane(2, idle.set)
    lane.put(partial(job, 0))
    await asyncio.sleep(0)
    for n in (1, 2):
        lane.put(partial(job, n))
    with pytest.raises(RateLimitedError):
        lane.put(partial(job, 3))
    assert lane.is_busy
    gate.set()
    await lane.finish(5)
    assert (done, lane.is_busy, idle.is_set()) == ([0, 1, 2], False, True)
    lane.put(partial(job, 4))
    await lane.finish(5)
    assert done[-1] == 4, "it starts again"


async def test_finishing_gives_up_what_takes_too_long() -> None:
    lane = Lane(2, lambda: None)
    lane.put(asyncio.Event().wait)  # type: ignore[arg-type]
    async with asyncio.timeout(2):
        await lane.finish(0.05)
    assert not lane.is_busy
