"""The per-request mailbox between the engine's fan-out and the one that reads it.

No queue per token: deltas that the reader has not taken yet are merged into one, so a slow
reader costs memory bounded by its own answer and no wake-ups at all. A reader is a task that waits
in `get`, or, where a task switch per delta is too much, a callback that is told to `take`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

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
        self._on_ready: Callable[[], None] | None = None
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
        pending, waiter, on_ready = self._pending, self._waiter, self._on_ready
        self._pending = output if pending is None else pending.merge(output)
        self._pending_chars += len(output.text)
        if output.logprobs:
            self._pending_chars += _LOGPROB_CHARS * sum(
                1 + len(entry.top) for entry in output.logprobs
            )
        self._finish = output.finish
        if on_ready is not None:
            if pending is None:
                on_ready()
        elif waiter is not None and not waiter.done():
            waiter.set_result(None)

    def follow(self, on_ready: Callable[[], None]) -> None:
        """In place of `get`: from now on `on_ready` is called when something waits where nothing
        did, and at once if something waits already. It is called within `put`, so it must not
        raise, and should only take a note of what there is to `take`.

        Raises StreamBusyError if a task is waiting, or somebody follows already."""
        self._check_free()
        self._on_ready = on_ready
        if self._pending is not None:
            on_ready()

    def unfollow(self) -> None:
        """`on_ready` is not called any more; what waits, waits for the next reader. Idempotent."""
        self._on_ready = None

    def take(self) -> RequestOutput | None:
        """What waits, merged; None where nothing does, and always after the terminal output."""
        output, self._pending, self._pending_chars = self._pending, None, 0
        if output is not None and output.finish is not None:
            self._is_exhausted = True
        return output

    async def get(self) -> RequestOutput | None:
        """The next merged delta; None after the terminal one. Cancelling loses nothing.

        Raises StreamBusyError if another task is already waiting, or somebody follows."""
        self._check_free()
        if self._pending is None and not self._is_exhausted:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.take()

    async def __aiter__(self) -> AsyncIterator[RequestOutput]:
        while (output := await self.get()) is not None:
            yield output

    def _check_free(self) -> None:
        if self._waiter is not None or self._on_ready is not None:
            raise StreamBusyError(f"request {self.request_id} already has a reader")
