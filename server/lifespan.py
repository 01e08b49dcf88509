"""The ASGI lifespan, driven so that an error at start comes out as itself.

The ASGI host would log a traceback and exit; the composition root has better words for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp

_Message = MutableMapping[str, Any]


@asynccontextmanager
async def lifespan(app: ASGIApp) -> AsyncIterator[None]:
    """Inside the block the app is started. Raises what the app's start or end raised."""
    to_app: asyncio.Queue[_Message] = asyncio.Queue()
    from_app: asyncio.Queue[_Message] = asyncio.Queue()
    scope: dict[str, Any] = {
        "type": "lifespan",
        "asgi": {"version": "3.0", "spec_version": "2.0"},
        "state": {},
    }
    task = asyncio.ensure_future(app(scope, to_app.get, from_app.put))
    try:
        to_app.put_nowait({"type": "lifespan.startup"})
        await _reply(task, from_app)
        try:
            yield
        finally:
            to_app.put_nowait({"type": "lifespan.shutdown"})
            await _reply(task, from_app)
            await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])


async def _reply(task: asyncio.Future[None], from_app: asyncio.Queue[_Message]) -> None:
    """Waits for the app's answer; a failure is raised as the exception behind it."""
    answer = asyncio.ensure_future(from_app.get())
    try:
        waited: list[asyncio.Future[Any]] = [task, answer]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if answer.done() and not answer.result()["type"].endswith(".failed"):
            return
        await task  # raises the app's own exception
        raise RuntimeError("The application ended its lifespan without an answer.")
    finally:
        answer.cancel()
