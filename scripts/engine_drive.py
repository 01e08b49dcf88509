"""Drives an engine with many requests at once: its core in this thread, or as a server does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.api import (
    Engine,
    EngineError,
    EngineStats,
    FinishType,
    GenerationRequest,
    RequestId,
    RequestOutput,
    Usage,
)
from engine.core import EngineCore


class DriveError(Exception):
    """A request ended otherwise than it should; the message says which and how."""


@dataclass(frozen=True, slots=True)
class Run:
    """Requests from the first submitted to the last finished. `decode_step_s`: a mean step of the
    time in which all of them decoded; None where there was no such time."""

    seconds: float
    output_tokens: int
    prompt_tokens: int
    cached_tokens: int
    num_steps: int
    num_preemptions: int
    decode_step_s: float | None


class TokenClock:
    """Notes when tokens came, and finds the time in which all sequences decode: from the last
    first token to the first end."""

    def __init__(self, num_sequences: int) -> None:
        self._num_sequences = num_sequences
        self._begun: set[int] = set()
        self._num_tokens = 0
        self._start: tuple[float, int] | None = None
        self._end: tuple[float, int] | None = None
        self._has_ended = False

    def note(self, now_s: float, news: Iterable[tuple[int, int, bool]]) -> None:
        """What one step brought: (sequence, new tokens, whether it has ended) each."""
        is_waiting = self._start is None
        has_ended = False
        for sequence, count, is_end in news:
            self._num_tokens += count
            has_ended |= is_end
            if is_waiting and count:
                self._begun.add(sequence)
        if is_waiting:
            if len(self._begun) == self._num_sequences:
                self._start = now_s, self._num_tokens
        elif not self._has_ended:
            self._end = now_s, self._num_tokens
        self._has_ended |= has_ended

    def decode_step_s(self) -> float | None:
        """Seconds for one token of each sequence, while all decode."""
        if self._start is None or self._end is None:
            return None
        num_tokens = self._end[1] - self._start[1]
        if num_tokens < self._num_sequences:
            return None
        return (self._end[0] - self._start[0]) * self._num_sequences / num_tokens


class Drive(Protocol):
    """A way to have requests answered."""

    def run(self, requests: Sequence[GenerationRequest]) -> Run:
        """All at once, until the last has ended. Raises DriveError."""
        ...


class CoreDrive:
    """Implements `Drive` with the engine's core alone: no other thread, no loop."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core

    def run(self, requests: Sequence[GenerationRequest]) -> Run:
        """See `Drive.run`."""
        core, clock = self._core, TokenClock(len(requests))
        indices = {request.request_id: index for index, request in enumerate(requests)}
        usages: list[Usage] = []
        before = core.stats()
        began_s = time.perf_counter()
        for request in requests:
            core.add(request)
        while core.has_work:
            outputs = core.step()
            clock.note(
                time.perf_counter(),
                [
                    (indices[output.request_id], len(output.token_ids), output.finish is not None)
                    for output in outputs
                ],
            )
            usages += _usages(outputs, requests, indices)
        return _made(time.perf_counter() - began_s, usages, before, core.stats(), clock)


class AsyncDrive:
    """Implements `Drive` with an engine that has started, in its thread, and a reader for each
    request on the loop, as the server has."""

    def __init__(self, engine: Engine, runner: asyncio.Runner) -> None:
        self._engine = engine
        self._runner = runner

    def run(self, requests: Sequence[GenerationRequest]) -> Run:
        """See `Drive.run`."""
        return self._runner.run(self._run(requests))

    async def _run(self, requests: Sequence[GenerationRequest]) -> Run:
        engine, clock = self._engine, TokenClock(len(requests))
        usages: list[Usage] = []
        failure: DriveError | None = None

        async def read(index: int, request: GenerationRequest) -> None:
            async with engine.generate(request) as stream:
                async for output in stream:
                    is_end = output.finish is not None
                    clock.note(time.perf_counter(), ((index, len(output.token_ids), is_end),))
                    usages.extend(_usages((output,), requests, {output.request_id: index}))

        before = engine.stats
        began_s = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                for index, request in enumerate(requests):
                    group.create_task(read(index, request))
        except* (DriveError, EngineError) as errors:
            failure = DriveError(str(errors.exceptions[0]))
        if failure is not None:
            raise failure
        return _made(time.perf_counter() - began_s, usages, before, engine.stats, clock)


def _usages(
    outputs: Iterable[RequestOutput],
    requests: Sequence[GenerationRequest],
    indices: Mapping[RequestId, int],
) -> list[Usage]:
    """Of those that ended. Raises DriveError unless each has all the tokens that it was to get."""
    usages = []
    for output in outputs:
        if output.finish is None:
            continue
        request = requests[indices[output.request_id]]
        usage, detail = output.finish.usage, output.finish.detail
        wanted = request.params.max_tokens
        if detail.type is not FinishType.MAX_TOKENS or usage.completion_tokens != wanted:
            raise DriveError(
                f"{output.request_id} ended as {detail.type.value} with "
                f"{usage.completion_tokens} of {wanted} tokens: {output.finish.message or ''}"
            )
        usages.append(usage)
    return usages


def _made(
    seconds: float,
    usages: Sequence[Usage],
    before: EngineStats,
    after: EngineStats,
    clock: TokenClock,
) -> Run:
    return Run(
        seconds=seconds,
        output_tokens=sum(usage.completion_tokens for usage in usages),
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        cached_tokens=sum(usage.cached_tokens for usage in usages),
        num_steps=after.num_steps - before.num_steps,
        num_preemptions=after.num_preemptions - before.num_preemptions,
        decode_step_s=clock.decode_step_s(),
    )
