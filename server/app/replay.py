"""How a run tells which messages it is about, and an answer that is stored already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.app.answering import base_fields, tell_citations
from server.app.records import (
    NO_TIMING,
    can_continue,
    can_undo,
    error_fields,
    has_no_support,
    not_found_parts,
    passage_json,
)
from server.service.runs import Run
from server.store.messages import Opened
from server.store.schema import Message, MessagePassage, MessageState
from server.store.seams import Part


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
    part: Part | None = None,
) -> None:
    """The events of a stored answer or summary behind `accepted`, to its end. `usage` is the stored
    one, or what is known where there is none. `part`: the continuation that was asked for; only
    what was written from there on is told."""
    # A continuation has its passages, and a summary needs none.
    if answer.context is not None and answer.role != "summary" and part is None:
        run.emit(
            "retrieval",
            passages=[passage_json(passage) for passage in passages],
            dropped=answer.context["passages_dropped"],
            not_found=answer.not_found,
            not_found_parts=not_found_parts(answer),
        )
        # Answers of an earlier version do not know where the model's view began; what is used
        # of the window in the end is told with the end.
        report = {"view_from": None, "summary": 0, **answer.context}
        for name in ("window_used", "not_found_parts"):
            report.pop(name, None)
        run.emit("context", **report)
    base = (0, 0) if part is None else (part.num_chars, part.num_thinking)
    asked, allowed = (answer.options or {}).get("max_tokens"), answer.max_tokens
    run.emit(
        "start",
        model=answer.model,
        prompt_tokens=usage["prompt_tokens"] + (part.num_tokens if part else 0),
        cached_tokens=usage["prompt_cache_hit_tokens"],
        max_tokens=allowed,
        max_tokens_lowered=bool(asked and allowed and asked > allowed),
        continued=part is not None,
        # Who has read the answer already begins with it anew.
        **base_fields(*base),
    )
    if thinking := (answer.thinking or "")[base[1] :]:
        run.emit("thinking", text=thinking)
    if text := answer.text[base[0] :]:
        run.emit("delta", text=text)
    detail, context = answer.finish_detail or {}, answer.context or {}
    left_out = {name: context[name] for name in ("turns_left_out",) if name in context}
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
        window_used=context.get("window_used"),
        can_undo=can_undo(answer),
        **left_out,
    )
