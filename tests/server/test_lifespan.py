"""The lifespan driver: start and end in order, errors as themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from server.lifespan import lifespan

pytestmark = pytest.mark.anyio


def app_with(events: list[str], *, fail: str = "", hangs: asyncio.Event | None = None) -> Starlette:
    @asynccontextmanager
    async def span(_: Starlette) -> AsyncIterator[None]:
        try:
            if hangs is not None:
                hangs.set()
                await asyncio.Event().wait()
            if fail == "start":
                raise LookupError("no such model")
            events.append("started")
            yield
            if fail == "end":
                raise LookupError("cannot close")
        finally:
            events.append("ended")

    return Starlette(lifespan=span)


async def test_start_and_end_in_order() -> None:
    events: list[str] = []
    async with lifespan(app_with(events)):
        events.append("inside")
    assert events == ["started", "inside", "ended"]


@pytest.mark.parametrize("when", ["start", "end"])
async def test_errors_come_out_as_themselves(when: str) -> None:
    events: list[str] = []
    with pytest.raises(LookupError):
        async with lifespan(app_with(events, fail=when)):
            events.append("inside")
    assert ("inside" in events) == (when == "end")
    assert events[-1] == "ended"


async def test_the_app_ends_when_the_block_fails() -> None:
    events: list[str] = []
    with pytest.raises(ZeroDivisionError):
        async with lifespan(app_with(events)):
            raise ZeroDivisionError
    assert events == ["started", "ended"]


async def test_cancelling_the_start_cleans_up() -> None:
    events: list[str] = []
    hangs = asyncio.Event()

    async def start() -> None:
        async with lifespan(app_with(events, hangs=hangs)):
            events.append("inside")

    task = asyncio.create_task(start())
    await hangs.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == ["ended"]


async def test_an_app_that_returns_early_is_an_error() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        return

    with pytest.raises(RuntimeError, match="without an answer"):
        async with lifespan(app):
            pass
