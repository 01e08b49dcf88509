"""What the plain ASGI helpers leave behind: nothing that still runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from server.service.http import ClientGoneError, Message, watch_client
from server.service.limits import ServiceLimits
from server.service.sse import event_stream

pytestmark = pytest.mark.anyio


async def _receive() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def _receive_end() -> Message:
    return {"type": "http.disconnect"}


async def _send(message: Message) -> None:
    pass


@asynccontextmanager
async def _stream() -> AsyncIterator[None]:
    async with event_stream(_send, ServiceLimits()):
        yield


@pytest.mark.parametrize("enter", [lambda: watch_client(_receive), _stream])
async def test_no_task_is_left(enter: type[AbstractAsyncContextManager[None]]) -> None:
    before = asyncio.all_tasks()
    async with enter():
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
