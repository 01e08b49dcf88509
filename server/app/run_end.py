"""`end_run`: stops a run for good, before what it writes to is taken away."""

from __future__ import annotations

import asyncio

from server.service.errors import ConversationBusyError
from server.service.runs import Run

_STOP_TIMEOUT_S = 5.0


async def end_run(run: Run) -> None:
    """Cancels the run; returns when it has ended and its answer is stored. Raises
    ConversationBusyError when it does not end within 5 s."""
    run.cancel()
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            async for _ in run.events(run.last_seq):
                pass
    except TimeoutError:
        raise ConversationBusyError("This conversation is still answering.") from None
