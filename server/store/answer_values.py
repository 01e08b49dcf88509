"""What is stored of an answer, step by step, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from server.store.schema import MessageState


@dataclass(frozen=True, slots=True)
class Opened:
    """Ids of a question and its answer, both stored, the answer `running`."""

    conversation_id: str
    question_id: str
    answer_id: str
    parent_id: str | None
    """The answer that the question follows; None at the top of a conversation."""


@dataclass(frozen=True, slots=True)
class PassageSnapshot:
    """A passage as it was shown with an answer; see `MessagePassage`."""

    n: int
    passage_id: str
    material_id: str
    title: str
    locator: str
    text: str
    score: float
    num_tokens: int
    used: bool
    place: dict[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the model was given for an answer."""

    prompt_token_ids: tuple[int, ...] | None
    context: dict[str, Any]
    passages: tuple[PassageSnapshot, ...]
    options: dict[str, Any]
    model: str
    not_found: bool = False


@dataclass(frozen=True, slots=True)
class Partial:
    """An answer so far: its whole text, all its tokens, and what was thought. `num_told`: see
    `Message`; None: as many characters as the text has."""

    answer_id: str
    text: str
    token_ids: tuple[int, ...]
    thinking: str | None = None
    num_told: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an answer ended. `text`, `thinking` and `token_ids` are the whole answer's; None: as
    stored."""

    state: MessageState
    finish_reason: str
    finish_detail: dict[str, Any]
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    usage: dict[str, Any] | None = None
    timing: dict[str, Any] | None = None
    max_tokens: int | None = None
    thinking: str | None = None
    num_told: int | None = None
    context: dict[str, Any] | None = None
    takes_back: bool = False
    """A continuation ended that added nothing: the answer is again what it was before, and
    nothing else of this outcome counts."""
    is_compared: bool = False
    """Whether `citations` and `marks` replace what is stored of an answer that was shorter."""
    citations: list[dict[str, Any]] | None = None
    """As `Message.citations`: None where nothing can be said of the answer's support."""
    marks: Mapping[int, list[list[int]]] = field(default_factory=dict)
    """By number of passage: the cited ones, with what of each supports the answer."""


class GoneError(Exception):
    """What a question, an answer or a summary belongs to was deleted while it was on its way."""

    def __init__(self, what: Literal["user", "course", "conversation"]) -> None:
        super().__init__(what)
        self.what = what
