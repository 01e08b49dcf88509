from __future__ import annotations

import asyncio
import time

import pytest

from server.service.loop_lag import INTERVAL_S, LoopLag

pytestmark = pytest.mark.anyio


async def test_a_blocked_loop_is_seen() -> None:
    seen: list[float] = []
    told = asyncio.Event()

    def observe(lag_s: float) -> None:
        seen.append(lag_s)
        told.set()

    lag = LoopLag(observe)
    lag.start()
    lag.start()
    blocked_s = 0.15
    time.sleep(INTERVAL_S + blocked_s)  # noqa: ASYNC251 - blocking the loop is the subject
    await told.wait()
    assert len(seen) == 1
    assert seen[0] >= blocked_s * 0.9
    timer = lag._timer
    assert timer is not None
    lag.stop()
    lag.stop()
    assert timer.cancelled(), "nothing is measured after stop"
