"""The evaluation questions, and how outcomes are judged and counted."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.retrieval_courses import (
    FOLDER,
    Question,
    StoredCourse,
    StoredPassage,
    letters,
    load_questions,
)
from scripts.retrieval_scores import Outcome, decision, flagged_at_best, missed, recall


def test_every_place_is_in_its_file_and_the_halves_are_alike() -> None:
    questions = load_questions()
    assert len(questions) >= 300
    assert len({question.id for question in questions}) == len(questions)
    for question in questions:
        for place in question.places:
            text = (FOLDER / question.course / place.file).read_text("utf-8")
            assert letters(place.evidence) in letters(text), question.id
    halves = [[q for q in questions if q.split == half] for half in ("dev", "test")]
    assert len(halves[0]) + len(halves[1]) == len(questions)
    assert abs(len(halves[0]) - len(halves[1])) < 5


def question(**fields: Any) -> Question:
    base: dict[str, Any] = {
        **{"id": "q", "course": "c", "lang": "en", "kind": "fact", "question": "Why?"},
        **{"history": [], "asked_on": None, "file": "f.md", "evidence": "it is, 20 %"},
        **{"answer": "so", "split": "dev", **fields},
    }
    return Question(**base)


def test_a_passage_is_right_when_it_is_of_the_file_and_holds_the_evidence() -> None:
    right = StoredPassage("1", "f.md", "t", "h", "But | it is |, so to say")
    exact = StoredPassage("2", "f.md", "t", "h", "**It** said: it is,\n20\u00a0% of all")
    elsewhere = StoredPassage("3", "g.md", "t", "h", exact.text)
    course = StoredCourse("c", {p.id: p for p in (right, exact, elsewhere)})
    assert course.rank(question(), ["1", "3", "2"]) == 3
    assert course.rank(question(), ["1", "3"]) is None


def outcome(rank: int | None, score: float, is_found: bool = True, **fields: Any) -> Outcome:
    return Outcome(question(**fields), rank, score, is_found)


def test_recall_and_decisions_are_counted() -> None:
    none: dict[str, Any] = {"kind": "unanswerable", "file": None, "evidence": None}
    calendar: dict[str, Any] = {"kind": "calendar", "file": None, "evidence": None}
    outcomes = [
        outcome(1, 0.9),
        outcome(4, 0.8),
        outcome(None, 0.3, is_found=False),
        outcome(None, 0.4, is_found=False, **none),
        outcome(None, 0.6, **none),
        outcome(None, 0.0, is_found=False, **calendar),
    ]
    reached = recall(outcomes)
    assert (reached.num_questions, reached.at_1, reached.at_5) == (3, 1 / 3, 2 / 3)
    assert reached.mrr == pytest.approx((1 + 1 / 4) / 3)
    decided = decision(outcomes)
    assert (decided.flagged, decided.num_unanswerable) == (1, 2)
    assert (decided.false_alarms, decided.num_answerable) == (1, 3)
    assert flagged_at_best(outcomes, alarms=0.0) == 0
    assert flagged_at_best(outcomes, alarms=0.4) == 2
    assert len(missed(outcomes)) >= 4
