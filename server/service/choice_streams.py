"""The choices of one completion request as they come from the engine: whole, or piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from engine.api import Finish, FinishReason, OutputStream
from server.service.answer_pieces import Piece, PieceReader
from server.service.errors import InternalError
from server.service.generation import ENGINE_FAILED
from server.service.replies import Choice


class ChoiceDelta(NamedTuple):
    """What is new of a choice."""

    piece: Piece
    finish: Finish | None


class ChoiceStream:
    """One choice. Owned by the task that answers."""

    def __init__(self, index: int, stream: OutputStream, reader: PieceReader | None = None) -> None:
        """`reader` None: the text is told as it is, and nothing else."""
        self.index = index
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

    def follow(self, on_ready: Callable[[], None]) -> None:
        """See `OutputStream.follow`."""
        self._stream.follow(on_ready)

    def unfollow(self) -> None:
        """See `OutputStream.unfollow`."""
        self._stream.unfollow()

    def take(self) -> ChoiceDelta | None:
        """What is new; None where nothing is, and always behind the end."""
        output = self._stream.take()
        if output is None:
            return None
        piece = Piece(output.text) if self._reader is None else self._reader.push(output)
        return ChoiceDelta(piece, output.finish)

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
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
