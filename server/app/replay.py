"""How a run tells which messages it is about, and an answer that is stored already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.app.answering import tell_citations
from server.app.records import (
    NO_TIMING,
    can_continue,
    can_undo,
    error_fields,
    has_no_support,
    passage_json,
)
from server.service.runs import Run
from server.store.messages import Opened
from server.store.schema import Message, MessagePassage, MessageState


def accept(run: Run, client_id: str, opened: Opened) -> None:
    """Tells that a client's message is stored, and under which ids."""
    run.emit(
        "accepted",
        id=client_id,
        conversation=opened.conversation_id,
        message=opened.answer_id,
        user_message=opened.question_id,
        parent=opened.parent_id,
    )


def tell_again(
    run: Run,
    client_id: str,
    answer: Message,
    passages: Sequence[MessagePassage],
    usage: dict[str, Any],
) -> None:
    """The events of a stored answer behind `accepted`, to its end. `usage` is the stored one, or
    what is known where there is none."""
    if answer.context is not None:
        run.emit(
            "retrieval",
            passages=[passage_json(passage) for passage in passages],
            dropped=answer.context["passages_dropped"],
            not_found=answer.not_found,
        )
        # Answers of an earlier version do not know where the model's view began; what is used
        # of the window in the end is told with the end.
        report = {"view_from": None, "summary": 0, **answer.context}
        report.pop("window_used", None)
        run.emit("context", **report)
    if answer.thinking:
        run.emit("thinking", text=answer.thinking)
    if answer.text:
        run.emit("delta", text=answer.text)
    detail = answer.finish_detail or {}
    if answer.state == MessageState.ERROR:
        run.emit("error", id=client_id, retryable=False, **error_fields(detail))
        return
    tell_citations(
        run, answer.citations or (), {passage.n: passage.passage_id for passage in passages}
    )
    run.emit(
        "finish",
        finish_reason=answer.finish_reason,
        finish_detail=detail,
        usage=usage,
        timing=answer.timing or NO_TIMING,
        can_continue=can_continue(answer),
        no_support=has_no_support(answer.finish_type, answer.text, answer.citations),
        max_tokens=answer.max_tokens,
        window_used=(answer.context or {}).get("window_used"),
        can_undo=can_undo(answer),
    )
