"""What a question takes over from the one before it."""

from __future__ import annotations

from datetime import date

import pytest

from server.app.calendar import CourseCalendar
from server.app.follow_ups import Asked, what_is_asked

CALENDAR = CourseCalendar(date(2026, 9, 25))


def asked(question: str, previous: str | None = None) -> Asked:
    return what_is_asked(question, previous, CALENDAR)


@pytest.mark.parametrize(
    "question",
    [
        "And the deadline?",
        "what about zebras and walruses?",
        "Where can its zebra and walrus be seen",
        "那斑马和海象的呢",
        "斑马和海象的笼子呢？",
        "它的斑马和海象在哪",
    ],
)
def test_a_follow_up_is_known_by_how_it_is_said(question: str) -> None:
    follow_up = asked(question, "Where is the aquarium?")
    assert follow_up.is_follow_up
    assert follow_up.decisive == follow_up.units
    assert ("aquarium",) in {unit.words for unit in follow_up.leaned}
    assert not asked(question).is_follow_up


def test_a_question_that_stands_alone_only_leans() -> None:
    alone = asked("Which cages have zebra and walrus keepers?", "Where is the aquarium?")
    assert not alone.is_follow_up
    assert alone.decisive == alone.own
    follow_up = asked("And its zebra and walrus keepers?", "Where is the aquarium?")
    assert 0 < alone.leaned[-1].weight < follow_up.leaned[-1].weight < 1


@pytest.mark.parametrize(
    ("question", "is_follow_up"),
    [
        ("When are office hours?", False),
        ("Who teaches the course?", False),
        ("期末考试在哪里？", False),
        ("什么时候答疑？", False),
        ("什么时候交？", True),
        ("When is the deadline?", True),
        ("Why?", True),
        ("In which room?", True),
        ("On Thursday?", True),
        ("The deadline?", True),
        ("哪个教室？", True),
        ("多少分？", True),
    ],
)
def test_a_whole_question_stands_alone_however_short(question: str, is_follow_up: bool) -> None:
    assert asked(question, "Explain zebras and walruses").is_follow_up is is_follow_up


def test_a_topic_of_many_words_does_not_outweigh_the_next_question() -> None:
    before = "Explain zebras, walruses, pelicans, badgers and otters of the aquarium"
    office = asked("When are office hours?", before)
    assert len(office.leaned) > 4
    own = sum(unit.weight for unit in office.own if unit.is_asked)
    assert sum(unit.weight for unit in office.leaned) < own / 2


def test_a_number_of_the_same_kind_takes_the_place_of_the_one_before() -> None:
    words = {unit.words for unit in asked("and lab 2?", "When is lab 1 of week 3 due?").units}
    assert ("ǂlab2",) in words
    assert ("ǂweek3",) in words
    assert ("ǂlab1",) not in words


def test_nothing_is_asked_twice() -> None:
    units = asked("zebra walrus", "walrus zebra").units
    assert len(units) == len({unit.words for unit in units}) == 2


def test_a_huge_question_is_cut_to_its_ends() -> None:
    units = asked("zebra " + "x1y2 " * 100_000 + " walrus").units
    assert {("zebra",), ("walrus",)} <= {unit.words for unit in units}
    assert len(units) <= 64
