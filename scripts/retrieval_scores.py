"""What a run of the evaluation questions is worth: recall, ranks, the not-found decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scripts.retrieval_courses import Question

RECALL_AT_5, RECALL_AT_1 = 0.95, 0.80
FLAGGED, FALSE_ALARMS = 0.9, 0.1
"""What the default retrieval is to reach in each language."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One question's: the place of the first right passage from 1 (None: not found), what the
    not-found decision goes by, and whether it called the question found."""

    question: Question
    rank: int | None
    score: float
    is_found: bool


@dataclass(frozen=True, slots=True)
class Recall:
    """Over questions that a passage answers."""

    num_questions: int
    at_1: float
    at_3: float
    at_5: float
    mrr: float


@dataclass(frozen=True, slots=True)
class Decision:
    """Of the questions without an answer, how many were flagged; of the others, how many were
    called not found though they have one (false alarms)."""

    flagged: int
    num_unanswerable: int
    false_alarms: int
    num_answerable: int

    @property
    def flagged_share(self) -> float:
        return self.flagged / max(1, self.num_unanswerable)

    @property
    def alarm_share(self) -> float:
        return self.false_alarms / max(1, self.num_answerable)


def recall(outcomes: Sequence[Outcome]) -> Recall:
    """Of those outcomes whose questions name a place."""
    ranks = [outcome.rank for outcome in outcomes if outcome.question.places]
    total = max(1, len(ranks))

    def at(most: int) -> float:
        return sum(rank is not None and rank <= most for rank in ranks) / total

    return Recall(len(ranks), at(1), at(3), at(5), sum(1 / rank for rank in ranks if rank) / total)


def decision(outcomes: Sequence[Outcome]) -> Decision:
    """What was decided; questions that the calendar alone answers do not count."""
    answerable = [outcome for outcome in outcomes if outcome.question.places]
    others = [outcome for outcome in outcomes if not outcome.question.is_answerable]
    return Decision(
        sum(not outcome.is_found for outcome in others),
        len(others),
        sum(not outcome.is_found for outcome in answerable),
        len(answerable),
    )


def flagged_at_best(outcomes: Sequence[Outcome], alarms: float = FALSE_ALARMS) -> int:
    """How many unanswerable questions any threshold flags at that share of false alarms: what the
    scores are worth where the threshold is not the question."""
    right = sorted(outcome.score for outcome in outcomes if outcome.question.places)
    if not right:
        return 0
    threshold = right[int(alarms * len(right))]
    return sum(
        outcome.score < threshold for outcome in outcomes if not outcome.question.is_answerable
    )


def missed(outcomes: Sequence[Outcome]) -> list[str]:
    """In words, where the default falls short."""
    short = []
    for language in ("en", "zh"):
        of_language = [o for o in outcomes if o.question.language == language]
        reached = recall(of_language)
        for name, value, least in (
            ("recall@5", reached.at_5, RECALL_AT_5),
            ("recall@1", reached.at_1, RECALL_AT_1),
        ):
            if value < least:
                short.append(f"{language}: {name} is {value:.3f}, below {least}")
    decided = decision(outcomes)
    if decided.flagged_share < FLAGGED:
        short.append(f"flagged: {decided.flagged_share:.2f} of the unanswerable, below {FLAGGED}")
    if decided.alarm_share > FALSE_ALARMS:
        short.append(f"false alarms: {decided.alarm_share:.2f}, above {FALSE_ALARMS}")
    return short
