"""What the plain ASGI helpers leave behind: nothing that still runs."""

from __future__ import annotations

import asyncio

import pytest

from server.service.http import ClientGoneError, Message, watch_client

pytestmark = pytest.mark.anyio


async def _receive() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def _receive_end() -> Message:
    return {"type": "http.disconnect"}


async def test_no_task_is_left() -> None:
    before = asyncio.all_tasks()
    async with watch_client(_receive):
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == len(before) + 1
    assert asyncio.all_tasks() == before


async def test_a_client_that_goes_away_is_told_once() -> None:
    before = asyncio.all_tasks()
    with pytest.raises(ClientGoneError):
        async with watch_client(_receive_end):
            await asyncio.Event().wait()
    assert asyncio.all_tasks() == before
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
