"""The events of a run: their names, their fields, and the JSON that they are written in.

An event is one JSON object `{"type", "run", "seq", …}`. Separators that some clients take for
line ends (U+2028, U+2029, U+0085) are written as escapes; JSON itself escapes what lies below
U+0020. The names and fields of the events stand in `EVENT_FIELDS`.
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
"""Every event type with the fields that it always has; more may be present."""

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
