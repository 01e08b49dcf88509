"""What an answer was before each of its continuations, kept with it so that they can be undone.

A state names lengths, not contents: the text, the thinking and the tokens of before are the
beginning of those of now. Tokens have a length of their own, since a character may be cut: its
first bytes are then in the tokens and not in the text. Each state names the idempotency key of the
continuation that began behind it, so that one that is asked for twice is made once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import undefer

from server.store.answer_values import GoneError
from server.store.column_types import utc_now
from server.store.schema import Message, MessagePassage, MessageState

_KEPT = (
    *("state", "finish_reason", "finish_detail", "finish_type", "num_told"),
    *("usage", "timing", "max_tokens", "options", "citations"),
)
"""Columns whose values are a part of the state."""


class NoSeamError(LookupError):
    """The answer has no continuation that could be undone."""


class AnswerChangedError(Exception):
    """The answer is no longer what it was when it was read, or is gone."""


@dataclass(frozen=True, slots=True)
class Part:
    """A continuation that is stored: behind how many characters, characters of thinking and tokens
    of the answer it began, and whether the answer ends with it."""

    num_chars: int
    num_thinking: int
    num_tokens: int
    is_last: bool


def part_of(answer: Message, client_id: str) -> Part | None:
    """The answer's last continuation that was asked for under this idempotency key."""
    for place in reversed(range(len(answer.earlier))):
        state = answer.earlier[place]
        if state.get("client_id") == client_id:
            return Part(
                state["num_chars"],
                state["num_thinking"] or 0,
                state["num_tokens"],
                is_last=place == len(answer.earlier) - 1,
            )
    return None


async def locked(session: AsyncSession, answer_id: str) -> Message | None:
    """The answer with its tokens, which nobody else changes before the transaction ends; None
    where it is gone."""
    # Where writers take turns anyway, the database leaves FOR UPDATE out.
    return await session.get(
        Message, answer_id, options=[undefer(Message.token_ids)], with_for_update=True
    )


async def begin_part(
    session: AsyncSession,
    answer_id: str,
    seen_at: datetime,
    options: dict[str, Any],
    client_id: str,
) -> None:
    """Marks an answer `running` again and keeps what it was when it was read, at `seen_at`, its
    `updated_at`. `options` are those of the part that begins, `client_id` its idempotency key: a
    part of the same key in which nothing was written gives way to it. Raises AnswerChangedError,
    GoneError."""
    answer = await locked(session, answer_id)
    if answer is None:
        raise GoneError("conversation")
    if answer.updated_at != seen_at or answer.state == MessageState.RUNNING:
        raise AnswerChangedError(answer_id)
    before = part_of(answer, client_id)
    if before and before.is_last and before.num_tokens == len(answer.token_ids or ()):
        await take_back_part(session, answer)
    state = await _state_of(session, answer)
    answer.earlier = [*answer.earlier, {**state, "client_id": client_id}]
    answer.seams = [*answer.seams, len(answer.text)]
    answer.state = MessageState.RUNNING
    answer.options = options
    answer.updated_at = utc_now()


async def take_back_part(session: AsyncSession, answer: Message) -> datetime:
    """Makes a locked answer what it was before its last continuation. Returns when it had last
    been changed then. Raises NoSeamError."""
    if not answer.earlier:
        raise NoSeamError(answer.id)
    *left, state = answer.earlier
    answer.earlier, answer.seams = left, answer.seams[:-1]
    answer.text = answer.text[: state["num_chars"]]
    answer.token_ids = (answer.token_ids or ())[: state["num_tokens"]]
    num_thinking = state["num_thinking"]
    answer.thinking = None if num_thinking is None else (answer.thinking or "")[:num_thinking]
    for name in _KEPT:
        setattr(answer, name, state[name])
    if answer.context is not None:
        answer.context = _with_window_used(answer.context, state["window_used"])
    await put_marks(session, answer.id, {int(n): marks for n, marks in state["marks"].items()})
    return datetime.fromisoformat(state["updated_at"])


async def put_marks(
    session: AsyncSession, answer_id: str, marks: Mapping[int, list[list[int]] | None]
) -> None:
    """Says which passages an answer cites, by their numbers, and what of each supports it."""
    of_answer = MessagePassage.message_id == answer_id
    await session.execute(
        update(MessagePassage).where(of_answer).values(is_cited=False, marks=None)
    )
    for n, ranges in marks.items():
        await session.execute(
            update(MessagePassage)
            .where(of_answer, MessagePassage.n == n)
            .values(is_cited=True, marks=ranges or None)
        )


async def _state_of(session: AsyncSession, answer: Message) -> dict[str, Any]:
    cited = await session.execute(
        select(MessagePassage.n, MessagePassage.marks).where(
            MessagePassage.message_id == answer.id, MessagePassage.is_cited
        )
    )
    return {
        **{name: getattr(answer, name) for name in _KEPT},
        "num_chars": len(answer.text),
        "num_thinking": None if answer.thinking is None else len(answer.thinking),
        "num_tokens": len(answer.token_ids or ()),
        "marks": {str(n): marks for n, marks in cited},
        "window_used": (answer.context or {}).get("window_used"),
        "updated_at": answer.updated_at.isoformat(),
    }


def _with_window_used(context: dict[str, Any], used: int | None) -> dict[str, Any]:
    rest = {name: value for name, value in context.items() if name != "window_used"}
    return rest if used is None else {**rest, "window_used": used}
