"""Reading stored answers back: the message JSON of the API, notices, and the JSONL export.

What the message JSON (and the events of a run) say of sources:

- `text` is exactly what the model wrote. Markers such as `[9]` that name no passage with `used`
  are in it, and are not to be shown (`citations.without_unknown` says what counts as one).
- `citations` is null where nothing was compared (questions, "not found", answers of old, what was
  cut before enough of it was complete, and what says nothing that a source could support), else
  `[{"n", "start", "end", "marks", "by"}]` in the order of the text: passage `n` stands behind
  characters `start` to `end` of `text` (in Unicode code points). `by` is `model` for a marker that
  the model wrote, whose range is the marker's own; `match` for a sentence that names nothing and
  that a sentence of the passage supports: its chip belongs at `end`; `none` for a sentence that no
  passage supports, in an answer of which others are supported: `n` is 0, `marks` is empty.
- each passage has `place` (`{"page", "to_page", "slide", "row", …}`, what applies, or null),
  `is_cited`, and `marks`, `[[start, end], …]`: the characters of its own `text` (code points again)
  that support the answer, to be marked in the panel. A citation's own `marks` are its share.
- `not_found_parts` are the parts of a question for which nothing was found, in its own words, where
  others were found: the model was asked these only. `retrieval` tells them too, and a notice
  `part_not_found` for each.
- `no_support` is true when no sentence of the passages supports an answer, also one that was cut
  and of which enough is complete to say so: the notice `no_support` says so in both languages.

A run tells each citation as `citation` (`n`, `passage`: its id, `start`, `end`, `marks`, `by`)
after the last `delta`, right before `finish`, which has `no_support` too. A continued answer's
citations are told anew, for the whole text: they replace those that were there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from engine.api import FinishType
from server.app.record_words import in_all_languages
from server.store.records import WHOLE_TYPES
from server.store.schema import Conversation, Feedback, Message, MessagePassage, MessageState
from server.store.seams import Part

NOT_FOUND_DETAIL = {"type": "not_found"}
"""Finish detail of an answer that retrieval gave, without a model."""

NO_TIMING = {"queue_ms": None, "ttft_ms": None, "total_ms": None, "tokens_per_s": None}
"""Timing of an answer that nobody timed to its end."""

_CONTINUABLE = frozenset(
    {
        FinishType.MAX_TOKENS,
        FinishType.CANCELLED,
        FinishType.CLIENT_GONE,
        FinishType.SLOW_CLIENT,
        FinishType.DEADLINE,
        FinishType.SHUTDOWN,
        FinishType.ERROR,
        "interrupted",
    }
)
"""Finish types after which the model had more to say and the window has room. `context_window`
and `kv_capacity` are not among them: there a continuation would end at once."""


class ShownPassage(Protocol):
    """A passage as it is shown with an answer, stored or about to be."""

    @property
    def n(self) -> int: ...
    @property
    def passage_id(self) -> str: ...
    @property
    def material_id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def locator(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def score(self) -> float: ...
    @property
    def used(self) -> bool: ...
    @property
    def place(self) -> dict[str, int] | None: ...


def state_of(finish: FinishType) -> MessageState:
    """The state of an answer that the engine ended so."""
    match finish:
        case FinishType.CANCELLED:
            return MessageState.STOPPED
        case (
            FinishType.CLIENT_GONE
            | FinishType.SLOW_CLIENT
            | FinishType.DEADLINE
            | FinishType.SHUTDOWN
        ):
            return MessageState.INTERRUPTED
        case FinishType.ERROR:
            return MessageState.ERROR
        case _:
            return MessageState.FINISHED


def is_continuable(
    finish_type: str, told: str, usage: dict[str, Any] | None, window: int | None
) -> bool:
    """Whether an answer that ended so can be continued token-exactly: it was cut, it has begun,
    and one more token fits into the window. `told` is its text, or what was thought before it:
    a cut inside the first character, or a marker, leaves neither, and tokens. `usage` is the
    stored one, `window` in tokens."""
    if finish_type not in _CONTINUABLE:
        return False
    if not told and not (usage or {}).get("completion_tokens"):
        return False
    if usage is None or window is None:
        return True
    return int(usage["total_tokens"]) < window


def can_continue(message: Message) -> bool:
    """Whether a stored answer can be continued."""
    return (
        message.role == "assistant"
        and message.state != MessageState.RUNNING
        and not message.not_found
        and is_continuable(
            (message.finish_detail or {}).get("type", ""),
            message.text or message.thinking or "",
            message.usage,
            (message.context or {}).get("window"),
        )
    )


def can_undo(message: Message) -> bool:
    """Whether a stored answer can be made what it was before its last continuation."""
    return message.state != MessageState.RUNNING and bool(message.earlier)


def is_answered(message: Message, part: Part | None = None) -> bool:
    """Whether a stored answer is the last word on its question: it is told again to who asks
    again. Not so what ended by an error that may be retried, or before its first word because
    the server stopped. `part`: the same of one of its continuations; the answer is then to be
    read with its tokens."""
    if part is not None and not part.is_last:
        return True
    match message.state:
        case MessageState.RUNNING:
            return False
        case MessageState.ERROR:
            return not (message.finish_detail or {}).get("retryable", True)
        case MessageState.INTERRUPTED if part is not None:
            return len(message.token_ids or ()) > part.num_tokens
        case MessageState.INTERRUPTED:
            return bool(message.text or message.thinking)
        case _:
            return True


def is_whole(message: Message) -> bool:
    """Whether a stored answer or summary ended by itself."""
    return message.finish_type in WHOLE_TYPES


def error_fields(detail: dict[str, Any]) -> dict[str, str]:
    """Code and message of an `error` event, from the stored finish detail."""
    return {
        "code": detail.get("code", "internal"),
        "message": detail.get("message", "The answer ended by an error."),
    }


def passage_json(passage: ShownPassage) -> dict[str, Any]:
    """A passage as the page gets it, in events and in stored messages alike."""
    return {
        "n": passage.n,
        "id": passage.passage_id,
        "material": passage.material_id,
        "title": passage.title,
        "locator": passage.locator,
        "text": passage.text,
        "score": passage.score,
        "used": passage.used,
        "place": passage.place,
    }


def source_json(passage: MessagePassage) -> dict[str, Any]:
    """A stored passage with what of it supports the answer."""
    return {
        **passage_json(passage),
        "is_cited": passage.is_cited,
        "marks": passage.marks or [],
    }


def feedback_json(feedback: Feedback | None) -> dict[str, Any] | None:
    """What somebody thinks of an answer; None where they have not said."""
    return None if feedback is None else {"value": feedback.value, "note": feedback.note}


def message_json(
    message: Message,
    passages: Sequence[MessagePassage] = (),
    feedback: Feedback | None = None,
) -> dict[str, Any]:
    """A stored message with how it ended, and what its reader thinks of it.

    `max_tokens` and `options` are those of the last part of an answer; what each part was allowed
    and used stands in `usage.parts`, where there are several. `can_undo`: the last part can be
    taken back. Of messages that were made again, the one changed last (`updated_at`) is the one
    that was worked on last: Continue changes an old one."""
    return {
        "id": message.id,
        "parent": message.parent_id,
        "role": message.role,
        "text": message.text,
        "thinking": message.thinking,
        "created_at": time_json(message.created_at),
        "updated_at": time_json(message.updated_at),
        "state": message.state,
        "model": message.model,
        "finish_reason": message.finish_reason,
        "finish_detail": message.finish_detail,
        "usage": message.usage,
        "timing": message.timing,
        "context": message.context,
        "passages": [source_json(passage) for passage in passages],
        "passages_dropped": (message.context or {}).get("passages_dropped", 0),
        "not_found": message.not_found,
        "not_found_parts": not_found_parts(message),
        "citations": message.citations,
        "no_support": has_no_support(message.finish_type, message.text, message.citations),
        "can_continue": can_continue(message),
        "can_undo": can_undo(message),
        "options": message.options,
        "max_tokens": message.max_tokens,
        "seams": message.seams,
        "feedback": feedback_json(feedback),
        "notices": notices(message),
    }


def not_found_parts(message: Message) -> list[str]:
    """The parts of the question that the model was not asked, since nothing was found for them."""
    return list((message.context or {}).get("not_found_parts", ()))


def has_no_support(
    finish_type: str | None, text: str, citations: Sequence[Mapping[str, Any]] | None
) -> bool:
    """Whether an answer has ended, however, and no sentence of its sources supports it. Of one
    that was cut early nothing is compared (`citations.cite_cut`)."""
    return (
        citations is not None
        and finish_type is not None
        and bool(text.strip())
        and not any(citation["marks"] for citation in citations)
    )


def notices(message: Message) -> list[dict[str, Any]]:
    """What a reader must know about an answer: that it was cut, that the model did not see the
    whole history, that found passages were left out, that nothing was found for a part of the
    question, that its sources do not support it. `en` and `zh` are sentences."""
    found = []
    context, detail = message.context or {}, message.finish_detail or {}
    match detail.get("type"):
        case "max_tokens" if detail.get("in") == "reasoning":
            found.append(_notice("all_thinking", "allThinking", limit=message.max_tokens))
        case "max_tokens":
            found.append(_notice("answer_cut", "answerCut", limit=message.max_tokens))
        case "context_window":
            found.append(_notice("window_full", "windowFull", window=context.get("window")))
        case "kv_capacity":
            found.append(_notice("window_full", "cacheFull"))
    found += [
        _notice("part_not_found", "partNotFound", part=part) for part in not_found_parts(message)
    ]
    if dropped := context.get("turns_dropped", 0):
        found.append(_notice("history_cut", "historyCut", n=dropped))
    if left_out := context.get("passages_dropped", 0):
        used = context.get("passages_used", 0)
        found.append(
            _notice("passages_left_out", "passagesLeftOut", used=used, total=used + left_out)
        )
    if message.undo_id is not None:
        found.append(_notice("continuation_undone", "continuationUndone"))
    if has_no_support(message.finish_type, message.text, message.citations):
        found.append(_notice("no_support", "noSupport"))
    return found


def export_jsonl(
    conversation: Conversation,
    course: str | None,
    messages: Iterable[Message],
    passages: Mapping[str, Sequence[MessagePassage]],
    feedback: Mapping[str, Feedback],
) -> bytes:
    """One line for the conversation, then one for each message, in order of making."""
    lines: list[dict[str, Any]] = [
        {
            "kind": "conversation",
            "id": conversation.id,
            "course": course,
            "title": conversation.title,
            "created_at": time_json(conversation.created_at),
            "updated_at": time_json(conversation.updated_at),
        }
    ]
    lines += [
        {
            "kind": "message",
            **message_json(message, passages.get(message.id, ()), feedback.get(message.id)),
        }
        for message in messages
    ]
    return msgspec.json.Encoder().encode_lines(lines)


def time_json(moment: datetime) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _notice(kind: str, key: str, **values: object) -> dict[str, Any]:
    return {"kind": kind, **in_all_languages(f"notice.{key}", **values)}
