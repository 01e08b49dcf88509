"""The per-request mailbox between the engine's fan-out and the one task that reads it.

No queue per token: deltas that the reader has not taken yet are merged into one, so a slow
reader costs memory bounded by its own answer and no wake-ups at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from engine.errors import StreamBusyError
from engine.types import Finish, RequestId, RequestOutput

_LOGPROB_CHARS = 64
"""What one log probability takes in a reply, about."""


class OutputStream:
    """One consumer's view of one request. Owned by the event loop's thread.

    Iterating yields merged `RequestOutput`s; the last one carries `finish`, and then the
    iteration ends. `put` never blocks and ignores everything after the terminal output."""

    def __init__(self, request_id: RequestId) -> None:
        self.request_id = request_id
        self._pending: RequestOutput | None = None
        self._pending_chars = 0
        self._waiter: asyncio.Future[None] | None = None
        self._finish: Finish | None = None
        self._is_exhausted = False

    @property
    def finish(self) -> Finish | None:
        """How the request ended; None while it runs. Set as soon as it is known, even if the
        reader has not reached it."""
        return self._finish

    @property
    def pending_chars(self) -> int:
        """Characters that wait for the reader; log probabilities count as what they will take."""
        return self._pending_chars

    def put(self, output: RequestOutput) -> None:
        """Adds a delta; wakes the reader if it waits. Loop thread only."""
        if self._finish is not None:
            return
        pending, waiter = self._pending, self._waiter
        self._pending = output if pending is None else pending.merge(output)
        self._pending_chars += len(output.text)
        if output.logprobs:
            self._pending_chars += _LOGPROB_CHARS * sum(
                1 + len(entry.top) for entry in output.logprobs
            )
        self._finish = output.finish
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def get(self) -> RequestOutput | None:
        """The next merged delta; None after the terminal one. Cancelling loses nothing.

        Raises StreamBusyError if another task is already waiting."""
        if self._waiter is not None:
            raise StreamBusyError(f"request {self.request_id} already has a reader")
        if self._pending is None and not self._is_exhausted:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        output, self._pending, self._pending_chars = self._pending, None, 0
        if output is not None and output.finish is not None:
            self._is_exhausted = True
        return output

    async def __aiter__(self) -> AsyncIterator[RequestOutput]:
        while (output := await self.get()) is not None:
            yield output
