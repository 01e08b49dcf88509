"""A completion as server-sent events: the engine's outputs in, frames out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from engine.api import Finish, FinishReason, Usage
from server.service.answer_pieces import Piece
from server.service.choice_streams import ChoiceStream, merged
from server.service.errors import InternalError, ServiceError
from server.service.exchange import Exchange
from server.service.generation import ENGINE_FAILED
from server.service.limits import ServiceLimits
from server.service.sse import event_stream


class FrameEncoder(Protocol):
    """The frames of one reply, ready made: whole events, with their blank line."""

    def opening(self, index: int) -> bytes:
        """Before a choice's first piece; may be empty."""
        ...

    def piece(self, index: int, piece: Piece) -> bytes:
        """A piece of a choice that has something to tell."""
        ...

    def finish(self, index: int, finish: Finish, detail: dict[str, Any]) -> bytes:
        """How a choice ended; `detail` is what is told of `finish.detail`."""
        ...

    def last(self, usages: Sequence[Usage], reasoning_tokens: int) -> bytes:
        """Behind the last choice's end; `usages` in the order of the choices."""
        ...

    def error(self, error: ServiceError) -> bytes:
        """In place of all that would still come."""
        ...


@dataclass(frozen=True, slots=True)
class StreamJob:
    """What is to be streamed."""

    encoder: FrameEncoder
    choices: Sequence[ChoiceStream]


async def stream_answer(exchange: Exchange, job: StreamJob, limits: ServiceLimits) -> list[Finish]:
    """Sends the whole reply and returns how the choices ended, in their order; fewer if the
    engine failed, of which the client was told.

    Raises SlowClientError, and ClientGoneError or ConnectionError for a client that left."""
    encoder = job.encoder
    finishes: dict[int, Finish] = {}
    opened: set[int] = set()
    exchange.status = 200
    async with (
        event_stream(exchange.send, limits, exchange.headers) as writer,
        aclosing(merged(job.choices)) as deltas,
    ):
        async for index, piece, finish in deltas:
            if finish is not None and finish.reason is FinishReason.ERROR:
                error = InternalError(finish.message or ENGINE_FAILED)
                await writer.end(encoder.error(error))
                return list(finishes.values())
            has_piece = bool(piece.text or piece.reasoning) or piece.logprobs is not None
            if not has_piece and finish is None:
                continue
            frames = b""
            if index not in opened:
                opened.add(index)
                frames = encoder.opening(index)
            if has_piece:
                frames += encoder.piece(index, piece)
            if finish is not None:
                finishes[index] = finish
                detail = job.choices[index].finish_detail(finish)
                frames += encoder.finish(index, finish, detail)
                if len(finishes) == len(job.choices):
                    in_order = [finishes[index] for index in sorted(finishes)]
                    usages = [finish.usage for finish in in_order]
                    thought = sum(choice.reasoning_tokens for choice in job.choices)
                    await writer.end(frames + encoder.last(usages, thought))
                    return in_order
            await writer.write(frames)
        await writer.end(encoder.error(InternalError(ENGINE_FAILED)))
    return list(finishes.values())
