"""The events of a run: their names, their fields, and the JSON that they are written in.

An event is one JSON object `{"type", "run", "seq", …}`. Separators that some clients take for
line ends (U+2028, U+2029, U+0085) are written as escapes; JSON itself escapes what lies below
U+0020. The names and fields of the events stand in `EVENT_FIELDS` and `OPTIONAL_FIELDS`.
"""

from __future__ import annotations

from typing import Any

import msgspec

EVENT_FIELDS: dict[str, tuple[str, ...]] = {
    "accepted": ("id", "conversation", "message", "user_message", "parent"),
    "queued": ("position",),
    "retrieval": ("passages", "dropped", "not_found"),
    "context": (
        "window",
        "system",
        "passages",
        "history",
        "question",
        "reserved",
        "turns_kept",
        "turns_dropped",
        "passages_used",
        "passages_dropped",
        "view_from",
        "summary",
        "turns_skipped",
    ),
    "start": (
        "model",
        "prompt_tokens",
        "cached_tokens",
        "max_tokens",
        "max_tokens_lowered",
        "continued",
    ),
    "progress": ("prefilled", "total"),
    "delta": ("text",),
    "thinking": ("text",),
    "snapshot": ("text", "through_seq"),
    "citation": ("n", "passage"),
    "finish": ("finish_reason", "finish_detail", "usage", "timing", "can_continue"),
    "error": ("code", "message", "retryable"),
}
"""Every event type with the fields that it always has; more may be present.

`context`: in tokens, what was seen of the window (`system + passages + history + question` is the
prompt) and what an answer may have (`reserved`); `view_from` is the id of the first question that
the model saw, None where no model was asked, and `summary` what of `history` is a summary of an
earlier conversation; `turns_skipped` counts earlier questions that no model is shown, since nothing
was found for them or they have no answer. `snapshot` stands for all deltas up to `through_seq`.
`finish`: of an answer in several parts, `usage` and `timing` are the whole answer's, and `parts` in
them holds each part's own."""

OPTIONAL_FIELDS: dict[str, tuple[str, ...]] = {
    "accepted": ("carried_from",),
    "queued": ("eta_ms",),
    "retrieval": ("not_found_parts",),
    "snapshot": ("thinking",),
    "start": ("base_chars", "base_thinking_chars"),
    "citation": ("start", "end", "marks", "by"),
    "finish": ("no_support", "max_tokens", "window_used", "can_undo", "turns_left_out"),
    "error": ("id", "param", "retry_after_ms"),
}
"""What an event may have besides. `eta_ms`: about how long the request still waits.
`retrieval.not_found_parts`: the parts of a question for which nothing is found, in its own words,
where something is found for the others.
`snapshot.thinking`: what all thinking so far joins to. `start`: behind how many characters (Unicode
code points) of the answer's text, and of its thinking, the run writes; what a reader has beyond
them is not a part of it. Both are there when `continued` is true, and are 0 where a stored answer
is told again as a whole; where they are missing, the answer begins with the run. `finish`:
`no_support`: nothing in its sources supports the answer, as far as it goes; `max_tokens`:
what its last part was allowed; `window_used`: tokens of the window that prompt and answer take
together; `can_undo`: its last continuation can be taken back; `turns_left_out`: of a summary, how
many of the oldest turns it could not take in. `retry_after_ms` is in every
`rate_limited` and `queue_full`."""

TERMINAL = frozenset({"finish", "error"})
"""Exactly one of these ends a run."""

TRANSIENT = frozenset({"delta", "thinking", "progress", "queued"})
"""What a snapshot replaces when a log is folded."""

_encode = msgspec.json.Encoder().encode


def to_json(value: Any) -> bytes:
    """JSON bytes without raw line separators of any kind."""
    data = _encode(value)
    # Two containment tests are cheaper than three replacements for nearly all texts.
    if b"\xe2\x80" in data:
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    if b"\xc2\x85" in data:
        data = data.replace(b"\xc2\x85", b"\\u0085")
    return data


class Event(msgspec.Struct, frozen=True, gc=False):
    """One numbered event. `text` is set for deltas and thinking only."""

    seq: int
    type: str
    data: bytes
    text: str | None = None
