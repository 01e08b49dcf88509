"""What fits into the model's window, and the report of what did not. Pure: counts in, counts out.

window ≥ system + history + passages + question + reserved answer. When that does not hold, the
oldest whole turns go first, then the summary that the conversation begins with, then the
lowest-ranked whole passages; the question never does.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


class QuestionTooLongError(Exception):
    """Not even the bare question fits; the message names all sizes, in tokens."""

    def __init__(self, sizes: PromptSizes) -> None:
        room = max(0, sizes.window - sizes.system - sizes.reserved)
        super().__init__(
            f"The question has {sizes.question} tokens, but only {room} fit: the model's window "
            f"is {sizes.window} tokens, of which the instructions take {sizes.system} and "
            f"{sizes.reserved} are kept for the answer."
        )
        self.num_tokens = sizes.question
        self.room = room


@dataclass(frozen=True, slots=True)
class PromptSizes:
    """Token counts of everything that could be in a prompt."""

    window: int
    reserved: int
    """Kept for the answer."""
    system: int
    """Instructions and the template's own tokens."""
    question: int
    turns: tuple[int, ...] = ()
    """One count per earlier turn (its question and answer), oldest first."""
    passages: tuple[int, ...] = ()
    """One count per passage, best first."""
    summary: int = 0
    """Of the summary that the conversation begins with."""

    def with_slack(self, num_tokens: int) -> PromptSizes:
        """The same with `num_tokens` more for the template."""
        return replace(self, system=self.system + num_tokens)


@dataclass(frozen=True, slots=True)
class Selection:
    """The newest `turns_kept` turns and the best `passages_used` passages fit, and the summary
    where there is one."""

    turns_kept: int
    passages_used: int
    has_summary: bool = False


@dataclass(frozen=True, slots=True)
class ContextReport:
    """What the model saw of an answer's context and what was left out, in tokens and counts:
    the fields of the `context` event. `system + passages + history + question` is the prompt.
    `summary` is what of the history is a summary of an earlier conversation; one that was left
    out counts as a dropped turn. `turns_skipped` are those that no model is ever shown
    (`history.history`). `view_from` is the id of the first question that the model saw; None: no
    model was asked."""

    window: int
    system: int
    passages: int
    history: int
    question: int
    reserved: int
    turns_kept: int
    turns_dropped: int
    passages_used: int
    passages_dropped: int
    view_from: str | None = None
    summary: int = 0
    turns_skipped: int = 0

    def to_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def reserve(window: int, max_tokens: int) -> int:
    """Tokens kept for an answer of at most `max_tokens`: all of them, but at most a quarter of
    the window, so that a generous limit does not push the materials out."""
    return max(1, min(max_tokens, window // 4))


def fit(sizes: PromptSizes) -> Selection:
    """The largest selection that fits. Raises QuestionTooLongError."""
    room = sizes.window - sizes.reserved - sizes.system - sizes.question
    if room < 0:
        raise QuestionTooLongError(sizes)
    turns, passages = len(sizes.turns), len(sizes.passages)
    excess = sum(sizes.turns) + sum(sizes.passages) + sizes.summary - room
    while excess > 0 and turns > 0:
        excess -= sizes.turns[len(sizes.turns) - turns]
        turns -= 1
    has_summary = sizes.summary > 0
    if excess > 0 and has_summary:
        excess -= sizes.summary
        has_summary = False
    while excess > 0:
        passages -= 1
        excess -= sizes.passages[passages]
    return Selection(turns, passages, has_summary)


def report(sizes: PromptSizes, selection: Selection, num_prompt_tokens: int) -> ContextReport:
    """The report of a prompt that was built with `selection` and measured as
    `num_prompt_tokens`. Where the parts, counted alone, differ by a token or two from the whole,
    the difference is told under `system`, so that the sum is exact."""
    kept = sizes.turns[len(sizes.turns) - selection.turns_kept :]
    used = sizes.passages[: selection.passages_used]
    summary = sizes.summary if selection.has_summary else 0
    return ContextReport(
        window=sizes.window,
        system=num_prompt_tokens - sum(kept) - summary - sum(used) - sizes.question,
        passages=sum(used),
        history=sum(kept) + summary,
        question=sizes.question,
        reserved=sizes.reserved,
        turns_kept=len(kept),
        turns_dropped=len(sizes.turns) - len(kept) + (sizes.summary > summary),
        passages_used=len(used),
        passages_dropped=len(sizes.passages) - len(used),
        summary=summary,
    )
