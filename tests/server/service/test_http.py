"""What the plain ASGI helpers leave behind: nothing that still runs."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from server.service.http import (
    ClientGoneError,
    Message,
    Receive,
    Scope,
    Send,
    abort_connection,
    watch_client,
)
from tests.server.service.harness import PATIENCE_S, hosted

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


async def test_a_dropped_connection_is_no_error_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """uvicorn called every reply unfinished whose client did not read."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        abort_connection(send)

    async with hosted(app) as port, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
    assert caplog.record_tuples == []
