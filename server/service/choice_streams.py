"""The choices of one completion request as they come from the engine: whole, or merged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from engine.api import Finish, FinishReason, OutputStream, RequestOutput, Tokenizer
from server.service.errors import InternalError
from server.service.generation import ENGINE_FAILED
from server.service.replies import Choice, Shape
from server.service.token_logprobs import LogprobAligner, TokenEntry, TokenTexts


@dataclass(frozen=True, slots=True)
class ChoiceDelta:
    """What is new of choice `index`. `logprobs` None: none are told with this piece."""

    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish: Finish | None


class ChoiceStream:
    """One choice. Owned by the task that answers."""

    def __init__(
        self, index: int, stream: OutputStream, shape: Shape, tokenizer: Tokenizer | None
    ) -> None:
        """`tokenizer` None: log probabilities were not asked for."""
        self._index = index
        self._stream = stream
        self._shape = shape
        self._aligner = None if tokenizer is None else LogprobAligner(tokenizer)
        self._texts = None if tokenizer is None else TokenTexts(tokenizer)

    async def collect(self) -> Choice:
        """The whole answer. Raises InternalError if the engine failed."""
        texts: list[str] = []
        entries: list[TokenEntry] = []
        finish: Finish | None = None
        async for output in self._stream:
            texts.append(output.text)
            if self._aligner is not None:
                entries += self._aligner.push(output)
            finish = output.finish
        if finish is None or finish.reason is FinishReason.ERROR:
            raise InternalError((finish and finish.message) or ENGINE_FAILED)
        return Choice("".join(texts), finish, self._told(entries))

    async def get(self) -> ChoiceDelta | None:
        """What is new; None behind the end."""
        output = await self._stream.get()
        return None if output is None else self._delta(output)

    def _delta(self, output: RequestOutput) -> ChoiceDelta:
        entries = () if self._aligner is None else self._aligner.push(output)
        told = self._told(entries) if entries else None
        return ChoiceDelta(self._index, output.text, told, output.finish)

    def _told(self, entries: Sequence[TokenEntry]) -> dict[str, Any] | None:
        return None if self._texts is None else self._shape.logprobs(self._texts, entries)


async def collected(streams: Sequence[ChoiceStream]) -> list[Choice]:
    """The whole answers, read side by side: what nobody reads would soon make its reader count as
    slow. Raises InternalError as soon as the engine failed for one."""
    tasks = [asyncio.create_task(stream.collect()) for stream in streams]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await _cancel(tasks)


async def merged(streams: Sequence[ChoiceStream]) -> AsyncGenerator[ChoiceDelta, None]:
    """What is new of all choices, as it comes."""
    if len(streams) == 1:
        while (delta := await streams[0].get()) is not None:
            yield delta
        return
    waiting = {asyncio.create_task(stream.get()): stream for stream in streams}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                stream = waiting.pop(task)
                delta = task.result()
                if delta is None:
                    continue
                if delta.finish is None:
                    waiting[asyncio.create_task(stream.get())] = stream
                yield delta
    finally:
        await _cancel(waiting)


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
