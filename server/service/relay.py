"""From one engine stream to one run's events: queued, start, progress, delta."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from engine.api import Engine, Finish, OutputStream, RequestOutput
from server.service.runs import Run

OnOutput = Callable[[str, tuple[int, ...]], None]

QUEUED_AFTER_S = 0.3
"""A request that is scheduled sooner has not waited for long; also how often its place in the
queue is looked at again."""


class Relay:
    """Reads one stream to its end. `start` holds the fields of the run's `start` event that are
    known before; the stream's first progress adds `cached_tokens`."""

    def __init__(
        self,
        engine: Engine,
        run: Run,
        start: dict[str, object],
        on_output: OnOutput | None = None,
    ) -> None:
        self._engine = engine
        self._run = run
        self._start = start
        self._on_output = on_output
        self._is_started = False
        self._texts: list[str] = []
        self.token_ids: list[int] = []

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._texts)

    async def read(self, stream: OutputStream) -> Finish | None:
        """Emits everything that the stream brings, and returns how it ended."""
        first = await self._first(stream)
        if first is not None:
            self._tell(first)
        async for output in stream:
            self._tell(output)
        return stream.finish

    async def _first(self, stream: OutputStream) -> RequestOutput | None:
        """The first output; meanwhile `queued` events, whenever the place has changed."""
        told: int | None = None
        while True:
            try:
                async with asyncio.timeout(QUEUED_AFTER_S):
                    return await stream.get()
            except TimeoutError:
                ahead = self._engine.queue_position(stream.request_id)
                # A first step may take long without anybody ahead: that is no queue.
                is_waiting = bool(ahead) or self._engine.stats.num_waiting > 0
                if ahead is not None and is_waiting and ahead != told:
                    told = ahead
                    self._run.emit("queued", position=ahead + 1)

    def _tell(self, output: RequestOutput) -> None:
        progress = output.progress
        if progress is not None:
            if not self._is_started:
                self._is_started = True
                self._run.emit("start", **self._start, cached_tokens=progress.cached)
            if progress.prefilled < progress.total:
                self._run.emit("progress", prefilled=progress.prefilled, total=progress.total)
        if output.text:
            self._run.emit("delta", text=output.text)
            self._texts.append(output.text)
        self.token_ids += output.token_ids
        if self._on_output is not None:
            self._on_output(output.text, output.token_ids)
