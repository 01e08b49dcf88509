"""`ReasoningMarkers`: what a model's thinking stands between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.api import Tokenizer

_TAIL_TOKENS = 32
"""How far from its end a prompt is searched for an opening marker."""
_KNOWN = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """What thinking stands between. The ids are those of control tokens; None: the markers are
    shown in the text."""

    opening: str
    closing: str
    opening_id: int | None = None
    closing_id: int | None = None

    @property
    def are_control(self) -> bool:
        return self.closing_id is not None


def find_markers(tokenizer: Tokenizer) -> ReasoningMarkers | None:
    """The markers of a model that has any: both are tokens of its vocabulary, or its chat template
    knows the closing one."""
    special = tokenizer.special_tokens
    for opening, closing in _KNOWN:
        if opening in special and closing in special:
            return ReasoningMarkers(opening, closing, special[opening], special[closing])
        is_known = closing in (tokenizer.chat_template or "") or all(
            len(tokenizer.encode(marker)) == 1 for marker in (opening, closing)
        )
        if is_known:
            return ReasoningMarkers(opening, closing)
    return None


def begins_inside(
    markers: ReasoningMarkers, token_ids: Sequence[int], tokenizer: Tokenizer
) -> bool:
    """Whether a prompt ends with an opening marker, so that the answer is thinking from its first
    token on."""
    data = b""
    for token_id in reversed(token_ids[-_TAIL_TOKENS:]):
        piece = tokenizer.token_bytes(token_id)
        if not piece:  # a control token
            return token_id == markers.opening_id and not data.strip()
        data = piece + data
        if not markers.are_control and data.rstrip().endswith(markers.opening.encode()):
            return True
    return False
