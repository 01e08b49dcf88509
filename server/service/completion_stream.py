"""A completion as server-sent events: the engine's outputs in, frames out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.api import Finish, FinishReason, FinishType, Usage
from server.service.answer_pieces import Piece
from server.service.choice_streams import ChoiceDelta, ChoiceStream
from server.service.errors import InternalError, ServiceError
from server.service.exchange import Exchange
from server.service.generation import ENGINE_FAILED
from server.service.limits import ServiceLimits
from server.service.sse import send_events


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
    frames = _Frames(job)
    await send_events(exchange, frames, limits)
    if len(frames.finishes) < len(job.choices):
        exchange.detail = FinishType.ERROR.value
    return frames.finishes


class _Frames:
    """The frames of one job: an `sse.EventSource`."""

    def __init__(self, job: StreamJob) -> None:
        self._encoder = job.encoder
        self._choices = job.choices
        self._open = list(job.choices)
        """Those that have not ended."""
        self._told: set[int] = set()
        """Those whose opening was told."""
        self._finishes: dict[int, Finish] = {}
        self._is_done = False

    @property
    def is_done(self) -> bool:
        return self._is_done

    @property
    def finishes(self) -> list[Finish]:
        """How the choices ended, in their order: those that have."""
        return [self._finishes[index] for index in sorted(self._finishes)]

    def follow(self, on_ready: Callable[[], None]) -> None:
        for choice in self._choices:
            choice.follow(on_ready)

    def unfollow(self) -> None:
        for choice in self._choices:
            choice.unfollow()

    def take(self) -> bytes:
        """What is new of all choices, in their order."""
        frames = b""
        for choice in self._open:
            delta = choice.take()
            if delta is not None:
                frames += self._frames(choice, delta)
                if self._is_done:
                    break
        if len(self._open) + len(self._finishes) > len(self._choices):
            self._open = [choice for choice in self._open if choice.index not in self._finishes]
        return frames

    def _frames(self, choice: ChoiceStream, delta: ChoiceDelta) -> bytes:
        piece, finish = delta
        index, encoder = choice.index, self._encoder
        frames = b""
        has_piece = bool(piece.text or piece.reasoning) or piece.logprobs is not None
        if index not in self._told and (has_piece or finish is not None):
            self._told.add(index)
            frames = encoder.opening(index)
        if has_piece:
            frames += encoder.piece(index, piece)
        if finish is None:
            return frames
        if finish.reason is FinishReason.ERROR:
            self._is_done = True
            return frames + encoder.error(InternalError(finish.message or ENGINE_FAILED))
        self._finishes[index] = finish
        frames += encoder.finish(index, finish, choice.finish_detail(finish))
        if len(self._finishes) == len(self._choices):
            self._is_done = True
            thought = sum(choice.reasoning_tokens for choice in self._choices)
            frames += encoder.last([finish.usage for finish in self.finishes], thought)
        return frames
