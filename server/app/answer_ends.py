"""How answers end that did not end by themselves, and with what they begin again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from engine.api import FinishType
from server.app.drafts import Draft, Drafts
from server.service.errors import ServiceError, ShuttingDownError, from_unknown
from server.store.messages import Outcome, Partial
from server.store.schema import Message, MessageState


@asynccontextmanager
async def closing(
    drafts: Drafts, answer_id: str, earlier: Message | None = None
) -> AsyncIterator[Draft]:
    """The draft of an answer that is made inside the block. An exception that leaves the block
    before the answer's end is known makes one up: what was there `earlier` where nothing came,
    else a failure with the text so far."""
    so_far = so_far_of(answer_id, earlier)
    with drafts.write(so_far) as draft:
        try:
            yield draft
        except BaseException as error:
            if draft.has_end:
                raise  # its own end is stored, or kept; there is none to make up
            outcome = failure(draft, error)
            if earlier is not None and len(draft.token_ids) == len(so_far.token_ids):
                outcome = unchanged(earlier)
            # What fails now is kept, and the first error is the one to tell.
            with suppress(SQLAlchemyError):
                await drafts.finish(draft, outcome)
            raise


def failure(draft: Draft, error: BaseException) -> Outcome:
    """How an answer ended that an exception cut short; its text so far is kept."""
    if isinstance(error, asyncio.CancelledError | ShuttingDownError):
        detail: dict[str, Any] = {"type": FinishType.SHUTDOWN.value}
        return _cut(MessageState.INTERRUPTED, "abort", detail, draft)
    told = from_unknown(error) if isinstance(error, Exception) else ServiceError("")
    detail = {
        "type": FinishType.ERROR.value,
        "code": told.code,
        "message": told.message,
        "retryable": told.retryable,
    }
    return _cut(MessageState.ERROR, "error", detail, draft)


def _cut(state: MessageState, reason: str, detail: dict[str, Any], draft: Draft) -> Outcome:
    return Outcome(
        state,
        reason,
        detail,
        draft.text,
        draft.token_ids,
        thinking=draft.thinking,
        num_told=draft.num_told,
    )


def so_far_of(answer_id: str, earlier: Message | None) -> Partial:
    """What there is of an answer that begins, or goes on."""
    if earlier is None:
        return Partial(answer_id, "", ())
    return Partial(
        answer_id, earlier.text, earlier.token_ids or (), earlier.thinking, earlier.num_told
    )


def unchanged(earlier: Message) -> Outcome:
    """The end that an answer had before a continuation that added nothing."""
    return Outcome(
        MessageState(earlier.state),
        earlier.finish_reason or "",
        earlier.finish_detail or {},
        takes_back=True,
    )
