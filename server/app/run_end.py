"""`end_runs`: stops runs for good, before what it writes to is taken away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from server.service.errors import ConversationBusyError
from server.service.runs import Run

_STOP_TIMEOUT_S = 5.0

Running = Callable[[], Iterable[Run]]
"""The runs that have not ended of somebody or something, as it is now."""


async def end_runs(running: Running) -> None:
    """Ends what runs, and what begins meanwhile. Raises ConversationBusyError."""
    while runs := list(running()):
        for run in runs:
            await _end_run(run)


def leave_runs(running: Running) -> None:
    """For what began after `end_runs`, before that was deleted to which it belongs: it generates
    no more. Nothing of it is stored, so nobody waits for it."""
    for run in running():
        run.cancel()


async def _end_run(run: Run) -> None:
    """Cancels the run; returns when it has ended and its answer is stored. Raises
    ConversationBusyError when it does not end within 5 s."""
    run.cancel()
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            async for _ in run.events(run.last_seq):
                pass
    except TimeoutError:
        raise ConversationBusyError("This conversation is still answering.") from None
