"""The choices of one completion request as they come from the engine: whole, or merged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Any, NamedTuple

from engine.api import Finish, FinishReason, OutputStream
from server.service.answer_pieces import Piece, PieceReader
from server.service.errors import InternalError
from server.service.generation import ENGINE_FAILED
from server.service.replies import Choice


class ChoiceDelta(NamedTuple):
    """What is new of the choice of that index."""

    choice: int
    piece: Piece
    finish: Finish | None


class ChoiceStream:
    """One choice. Owned by the task that answers."""

    def __init__(self, index: int, stream: OutputStream, reader: PieceReader | None = None) -> None:
        """`reader` None: the text is told as it is, and nothing else."""
        self._index = index
        self._stream = stream
        self._reader = reader

    async def collect(self) -> Choice:
        """The whole answer. Raises InternalError if the engine failed."""
        outputs = [output async for output in self._stream]
        finish = self._stream.finish
        if finish is None or finish.reason is FinishReason.ERROR:
            raise InternalError((finish and finish.message) or ENGINE_FAILED)
        if self._reader is None:
            piece = Piece("".join(output.text for output in outputs))
        else:
            piece = self._reader.collect(outputs)
        return Choice(piece, finish, self.finish_detail(finish), self.reasoning_tokens)

    async def get(self) -> ChoiceDelta | None:
        """What is new; None behind the end."""
        output = await self._stream.get()
        if output is None:
            return None
        piece = Piece(output.text) if self._reader is None else self._reader.push(output)
        return ChoiceDelta(self._index, piece, output.finish)

    def finish_detail(self, finish: Finish) -> dict[str, Any]:
        """What is told of `finish.detail`."""
        return (
            finish.detail.to_json() if self._reader is None else self._reader.finish_detail(finish)
        )

    @property
    def reasoning_tokens(self) -> int:
        return 0 if self._reader is None else self._reader.reasoning_tokens


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
