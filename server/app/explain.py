"""Why passages were found, or not: what a teacher sees when trying a question. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from server.app.candidates import Passage
from server.app.prompts import Language, language_of
from server.app.relevance import frequency_of, holding, rarity
from server.store.analysis import QueryUnit
from server.store.concepts import CONCEPTS, KEY_MARK
from server.store.passage_index import Hit, WordCounts
from server.store.vocabulary import NUMBERED

_MAX_SHOWN = 3
_FACTS: dict[str, dict[Language, str]] = {
    "date": {"en": "a date", "zh": "日期"},
    "clock": {"en": "a time of day", "zh": "时刻"},
    "duration": {"en": "a length of time", "zh": "时长"},
    "size": {"en": "a size", "zh": "大小"},
    "percentage": {"en": "a percentage", "zh": "百分比"},
    "price": {"en": "a price", "zh": "价格"},
    "headcount": {"en": "a number of people", "zh": "人数"},
    "length": {"en": "a number of pages or words", "zh": "篇幅"},
}
"""Kinds of facts (`server.store.dates`) that a passage may hold."""


@dataclass(frozen=True, slots=True)
class ExplainedUnit:
    """One thing that a question asks for. `label`: its words, as people read them, and `label_zh`
    for those who read Chinese; `weight`: how
    much it counts, `rarity`: how much more for being rare; `num_passages` of the course that hold
    it; `is_asked` False: it only helps the ranking; `from_previous`: of the question before."""

    label: str
    label_zh: str
    weight: float
    rarity: float
    num_passages: int
    is_asked: bool
    from_previous: bool


@dataclass(frozen=True, slots=True)
class Match:
    """A unit (its number, from 0) that a passage holds: in which columns, and how often there,
    with words of headings counted more."""

    unit: int
    columns: tuple[str, ...]
    frequency: float


@dataclass(frozen=True, slots=True)
class ExplainedPassage:
    """A passage with the reasons for its place. `rank`: what orders passages; `lexical_place`
    and `semantic_place`: its places, from 1, by words and by meaning, None where it has none.
    `likelihood`: of the question after it, in nats, where the model was asked.
    `is_given`: an answer would be made from it."""

    passage: Passage
    rank: float
    coverage: float
    matches: tuple[Match, ...]
    lexical_place: int | None
    semantic_place: int | None
    likelihood: float | None
    is_hidden: bool
    is_given: bool


@dataclass(frozen=True, slots=True)
class Explained:
    """What would be found for a question, and why. `threshold`: the least score of an answer.
    `parts`: of a question of several parts that is not found as a whole, while a part is."""

    is_found: bool
    score: float
    threshold: float
    is_follow_up: bool
    units: tuple[ExplainedUnit, ...]
    passages: tuple[ExplainedPassage, ...]
    parts: tuple[ExplainedPart, ...] = ()


@dataclass(frozen=True, slots=True)
class ExplainedPart:
    """A part of a question. `explained` is None where it was not searched, since it leans on a
    part for which nothing is found."""

    question: str
    explained: Explained | None


def explain_units(
    own: Sequence[QueryUnit], leaned: Sequence[QueryUnit], counts: WordCounts
) -> tuple[ExplainedUnit, ...]:
    """The units of a question in order."""
    return tuple(
        ExplainedUnit(
            label_of(unit, "en"),
            label_of(unit, "zh"),
            round(unit.weight, 3),
            round(rarity(unit, counts), 3),
            holding(unit, counts),
            unit.is_asked,
            n >= len(own),
        )
        for n, unit in enumerate([*own, *leaned])
    )


def matches(units: Sequence[QueryUnit], hit: Hit) -> tuple[Match, ...]:
    """The units that a passage holds."""
    return tuple(
        Match(n, _columns(unit, hit.columns), round(frequency, 2))
        for n, unit in enumerate(units)
        if (frequency := frequency_of(unit, hit.words))
    )


def label_of(unit: QueryUnit, language: Language) -> str:
    """The unit for a reader: a concept by its first phrases, a numbered thing or a date by name,
    words as they are indexed."""
    labels = [_label(word, language) for word in unit.words[:_MAX_SHOWN]]
    more = " …" if len(unit.words) > _MAX_SHOWN else ""
    return " / ".join(labels) + ("*" if unit.prefix else "") + more


def _label(word: str, language: Language) -> str:
    if not word.startswith(KEY_MARK):
        return word
    name = word.removeprefix(KEY_MARK)
    if name in CONCEPTS:
        own = [phrase for phrase in CONCEPTS[name] if language_of(phrase) == language]
        return ", ".join((own or list(CONCEPTS[name]))[:_MAX_SHOWN])
    if name.startswith("has"):
        kind = name.removeprefix("has")
        return _FACTS.get(kind, {}).get(language, kind)
    digits = name.lstrip("abcdefghijklmnopqrstuvwxyz")
    if name.startswith("d") and len(digits) == len(name) - 1 == 4:
        return f"{digits[:2]}-{digits[2:]}"
    kind = name[: len(name) - len(digits)]
    if language == "zh":
        own = [one for one in NUMBERED.get(kind, ()) if not one.isascii()]
        kind = min(own, key=len, default=kind)
    return f"{kind} {digits}".strip()


def _columns(unit: QueryUnit, columns: Mapping[str, str]) -> tuple[str, ...]:
    found = {
        column
        for word, names in columns.items()
        if word in unit.words or (unit.prefix and word.startswith(unit.words))
        for column in names.split()
    }
    return tuple(column for column in ("title", "heading", "text") if column in found)
