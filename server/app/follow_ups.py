"""What a question asks for, alone or as a follow-up of the one before it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import regex

from server.app.calendar import CourseCalendar
from server.store.analysis import QueryUnit, fold, numbered_kind, query_units

_MAX_QUESTION_CHARS = 2000
_MAX_UNITS = 64
_PREVIOUS_WEIGHT, _UNNEEDED_WEIGHT = 0.5, 0.3
"""What the question before counts, for a follow-up and for one that stands on its own."""
_MOST_UNNEEDED = 0.35
"""All that a question that stands on its own takes over weighs no more than this share of what it
asks for: the topic before it may have many words, and has often been left."""
_FOLLOW_UP_WEIGHT = 2.0
"""A question whose units weigh less than this together may lean on the one before it."""
_TOPIC_WEIGHT = 0.4
"""A whole question that names a topic of so much weight ("When are office hours?") does not."""
_NO_TOPICS = frozenset({"ǂroom", "ǂdeadline", "ǂcount", "ǂduration", "ǂbig"})
"""What is asked of any topic: "When is the deadline?", "哪个教室？"."""

_OPENING = regex.compile(
    r"\s*(?:and\b|but\b|so\b|also\b|what about\b|how about\b|what if\b|then\b"
    r"|那么?|还有|另外|如果是|要是|但是?|然后|除此之外)"
)
_PRONOUN = regex.compile(
    r"\b(?:it|its|they|them|their|that one|this one|those|these|the same|there|he|she|him)\b"
    r"|它们?|他们?|她们?|这个|那个|那里|这里|其中|上面"
)
_NO_PRONOUN = regex.compile(
    r"\b(?:is|are|was|were|be|been|will|would|can) there\b|\bthere(?:'s| is| are)\b"
)
_ENDING = regex.compile(r"呢\s*[?？。]?\s*$")
_CLAUSE = regex.compile(
    r"\s*(?:(?:on|at|in|by|until|for|to|from) )?(?:when|where|who|whom|whose|what|which|how|why)\b"
    r".{0,80}?\b(?:is|are|was|were|do|does|did|can|may|must|should|will|has|have|teach\w*|gives?"
    r"|holds?)\b"
)
_CLAUSE_ZH = regex.compile(r"什么|哪|几|谁|怎|如何|多少|多久|是否|吗")


@dataclass(frozen=True, slots=True)
class Previous:
    """The question before, and the materials that its answer was taken from."""

    question: str
    material_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """`own`: what the question itself asks for; `leaned`: what it takes over, at less weight.
    `is_follow_up`: it is to be understood from the question before."""

    own: tuple[QueryUnit, ...]
    leaned: tuple[QueryUnit, ...]
    is_follow_up: bool

    @property
    def units(self) -> tuple[QueryUnit, ...]:
        return self.own + self.leaned

    @property
    def decisive(self) -> tuple[QueryUnit, ...]:
        """What a passage must cover to be an answer."""
        return self.units if self.is_follow_up else self.own


def what_is_asked(question: str, previous: str | None, calendar: CourseCalendar) -> Asked:
    """The units of `question` (of a very long one those of its beginning and end)."""
    own = _units(question, calendar)
    if not previous:
        return Asked(tuple(own), (), is_follow_up=False)
    known = {unit.words for unit in own}
    named = {thing for unit in own if (thing := numbered_kind(unit)) is not None}
    is_follow_up = _leans(question, own)
    share = _PREVIOUS_WEIGHT if is_follow_up else _UNNEEDED_WEIGHT
    leaned = [
        replace(unit, weight=unit.weight * share)
        for unit in _units(previous, calendar)
        # "And Lab 2?" asks about Lab 2 instead of the lab before.
        if unit.words not in known and numbered_kind(unit) not in named
    ]
    if not is_follow_up:
        leaned = _limited(leaned, _MOST_UNNEEDED * _asked_weight(own))
    return Asked(tuple(own), tuple(leaned), is_follow_up)


def leans(question: str) -> bool:
    """Whether a question says too little alone, so that one before it may have to help."""
    return _leans(question, query_units(question[:_MAX_QUESTION_CHARS]))


def refers_back(question: str) -> bool:
    """Whether a question names something by a word that says nothing without another question."""
    folded = _NO_PRONOUN.sub(" ", fold(question[:_MAX_QUESTION_CHARS]))
    return _PRONOUN.search(folded) is not None or _ENDING.search(folded) is not None


def _leans(question: str, own: Sequence[QueryUnit]) -> bool:
    folded = fold(question[:_MAX_QUESTION_CHARS])
    topics = [unit for unit in own if not _NO_TOPICS.issuperset(unit.words)]
    is_whole = (
        _CLAUSE.match(folded) is not None or _CLAUSE_ZH.search(folded) is not None
    ) and _asked_weight(topics) >= _TOPIC_WEIGHT
    return (
        (_asked_weight(own) < _FOLLOW_UP_WEIGHT and not is_whole)
        or _OPENING.match(folded) is not None
        or _ENDING.search(folded) is not None
        or _PRONOUN.search(folded) is not None
    )


def _asked_weight(units: Sequence[QueryUnit]) -> float:
    return sum(unit.weight for unit in units if unit.is_asked)


def _limited(units: Sequence[QueryUnit], most: float) -> list[QueryUnit]:
    """The units, weighing no more than `most` together."""
    total = sum(unit.weight for unit in units)
    share = min(1.0, most / total) if total else 1.0
    return [replace(unit, weight=unit.weight * share) for unit in units]


def _units(question: str, calendar: CourseCalendar) -> list[QueryUnit]:
    if len(question) > _MAX_QUESTION_CHARS:
        half = _MAX_QUESTION_CHARS // 2
        question = question[:half] + "\n" + question[-half:]
    rest, times = calendar.resolve(question)
    return [*times, *query_units(rest)][:_MAX_UNITS]
