"""`Relay`: from one engine stream to one run's events: queued, start, progress, thinking, delta."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from engine.api import Finish, OutputStream, RequestOutput
from server.service.answer_pieces import PieceReader
from server.service.fan_out import FanOut
from server.service.queue_estimate import QueuePlace
from server.service.run import Run

OnOutput = Callable[[str, tuple[int, ...], str, int], None]
"""Hears of each output: its text, its tokens, what of it is thinking, and how many characters of
the tokens' own text have been told so far, as one or the other."""

QUEUED_AFTER_S = 0.2
"""A request that is scheduled sooner has not waited for long."""


class Relay:
    """Reads one stream to its end, in the fan-out: no task is woken for a delta. Owned by the
    event loop's thread.

    A run that has had nothing to tell for `heartbeat_s` tells again where it stands."""

    def __init__(
        self,
        run: Run,
        start: dict[str, object],
        fan_out: FanOut,
        place: Callable[[], QueuePlace | None],
        *,
        heartbeat_s: float,
        on_output: OnOutput | None = None,
        reader: PieceReader | None = None,
    ) -> None:
        """`start` holds the fields of the run's `start` event that are known before; the
        stream's first progress adds `cached_tokens`. `place`: where the request waits; None when
        it does not. `reader` None: the text is told as the engine gives it."""
        self._run = run
        self._start = start
        self._fan_out = fan_out
        self._place = place
        self._heartbeat_s = heartbeat_s
        self._on_output = on_output
        self._reader = reader
        self._is_started = False
        self._told_position: int | None = None
        self._progress = (0, start["prompt_tokens"])
        self._last_seq = run.last_seq
        self._quiet_since_s = asyncio.get_running_loop().time()
        self._began_s = self._quiet_since_s
        self._texts: list[str] = []
        self._num_told = 0
        self._thinking_began_s: float | None = None
        self._thinking_ended_s: float | None = None
        self._stream: OutputStream | None = None
        self._ended = asyncio.Event()
        self._error: Exception | None = None
        self.token_ids: list[int] = []

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._texts)

    @property
    def reasoning_tokens(self) -> int:
        """How many of the tokens so far were thinking."""
        return 0 if self._reader is None else self._reader.reasoning_tokens

    @property
    def thinking_s(self) -> float | None:
        """From the first thinking to the first text behind it, or to the end; None: there was
        none."""
        return _between(self._thinking_began_s, self._thinking_ended_s)

    def finish_detail(self, finish: Finish) -> dict[str, Any]:
        """What is to be told of `finish.detail`."""
        return (
            finish.detail.to_json() if self._reader is None else self._reader.finish_detail(finish)
        )

    async def read(self, stream: OutputStream) -> Finish | None:
        """Emits everything that the stream brings, and returns how it ended. Raises what the run
        or `on_output` raises for a piece of it."""
        self._stream = stream
        stream.follow(partial(self._fan_out.mark, self))
        self._fan_out.watch(self)
        try:
            await self._ended.wait()
        finally:
            self._fan_out.unwatch(self)
            stream.unfollow()
            self._stream = None  # a flush that is still to come takes nothing from who reads next
        if self._error is not None:
            raise self._error
        return stream.finish

    def flush(self) -> None:
        """Tells what the stream has brought."""
        stream = self._stream
        output = stream.take() if stream is not None and self._error is None else None
        if output is None:
            return
        try:
            self._tell(output)
        except Exception as error:  # noqa: BLE001 -- the reading task raises it
            self._error = error
        if self._error is not None or output.finish is not None:
            self._ended.set()

    def tick(self, now_s: float) -> None:
        """Tells the place in the queue when it has changed, and what there is to tell when nothing
        was told for long."""
        if self._ended.is_set() or self._run.is_finished:
            return
        if self._run.last_seq != self._last_seq:
            self._last_seq = self._run.last_seq
            self._quiet_since_s = now_s
        is_quiet = now_s - self._quiet_since_s >= self._heartbeat_s
        if self._is_started and not is_quiet:
            return
        if now_s - self._began_s < min(QUEUED_AFTER_S, self._heartbeat_s):
            return
        place = self._place()
        if place is not None and (is_quiet or place.position != self._told_position):
            self._told_position = place.position
            eta = {} if place.eta_ms is None else {"eta_ms": place.eta_ms}
            self._run.emit("queued", position=place.position, **eta)
        elif is_quiet:
            prefilled, total = self._progress
            self._run.emit("progress", prefilled=prefilled, total=total)

    def _tell(self, output: RequestOutput) -> None:
        progress = output.progress
        if progress is not None:
            if not self._is_started:
                self._is_started = True
                self._run.emit("start", **self._start, cached_tokens=progress.cached)
            self._progress = (progress.prefilled, progress.total)
            if progress.prefilled < progress.total:
                self._run.emit("progress", prefilled=progress.prefilled, total=progress.total)
        text, thinking = output.text, ""
        if self._reader is None:
            self._num_told += len(text)
        else:
            text, thinking = self._read(self._reader, output)
        if text:
            self._run.emit_delta(text)
            self._texts.append(text)
        self.token_ids += output.token_ids
        if self._on_output is not None:
            self._on_output(text, output.token_ids, thinking, self._num_told)

    def _read(self, reader: PieceReader, output: RequestOutput) -> tuple[str, str]:
        """Tells the thinking of `output`, and returns its text and its thinking."""
        text, thinking, _ = reader.push(output)
        self._num_told = reader.num_told
        if thinking:
            self._run.emit("thinking", text=thinking)
        if self._thinking_ended_s is None and (thinking or self._thinking_began_s is not None):
            now_s = asyncio.get_running_loop().time()
            if self._thinking_began_s is None:
                self._thinking_began_s = now_s
            if text or output.finish is not None:
                self._thinking_ended_s = now_s
        return text, thinking


def _between(began_s: float | None, ended_s: float | None) -> float | None:
    return None if began_s is None or ended_s is None else ended_s - began_s
