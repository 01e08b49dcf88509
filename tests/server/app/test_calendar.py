"""What words for times mean on a given day of a course."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from server.app.calendar import CourseCalendar, today_in
from server.store.analysis import query_units

# A Friday of week 3.
CALENDAR = CourseCalendar(date(2026, 9, 25), date(2026, 9, 9), 14)


def keys(question: str, calendar: CourseCalendar = CALENDAR) -> list[tuple[str, ...]]:
    return [unit.words for unit in calendar.resolve(question)[1] if unit.is_asked]


@pytest.mark.parametrize(
    ("question", "key"),
    [
        ("What is due today?", "ǂd0925"),
        ("今天讲什么", "ǂd0925"),
        ("tomorrow's lecture", "ǂd0926"),
        ("后天有课吗", "ǂd0927"),
        ("yesterday", "ǂd0924"),
        ("this Thursday", "ǂd0924"),
        ("这周四", "ǂd0924"),
        ("本星期日", "ǂd0927"),
        ("下周一", "ǂd0928"),
        ("上个星期二", "ǂd0915"),
        ("last Monday", "ǂd0914"),
    ],
)
def test_days(question: str, key: str) -> None:
    assert keys(question) == [(key,)]


def test_next_thursday_may_be_the_coming_one_or_the_one_of_next_week() -> None:
    assert keys("next Thursday") == [("ǂd1001",)]
    monday = CourseCalendar(date(2026, 9, 21))
    assert keys("next Thursday", monday) == [("ǂd0924", "ǂd1001")]


@pytest.mark.parametrize(
    ("question", "week"),
    [
        ("this week", 3),
        ("本周", 3),
        ("next week", 4),
        ("下个星期", 4),
        ("last week", 2),
        ("上周", 2),
        ("Which week is it?", 3),
        ("what week of the term are we in now", 3),
        ("现在是第几周？", 3),
        ("今天第几周了", 3),
    ],
)
def test_weeks_have_their_number_and_their_days(question: str, week: int) -> None:
    ((*days, number),) = keys(question)
    assert number == f"ǂweek{week}"
    assert len(days) == 7


@pytest.mark.parametrize(
    "question", ["Which week is Lab 3 due?", "实验三在第几周", "in which week"]
)
def test_the_week_of_something_else_is_not_the_present_one(question: str) -> None:
    assert keys(question) == []


def test_weeks_outside_of_the_term_or_without_one_have_no_number() -> None:
    for calendar in (
        CourseCalendar(date(2026, 9, 1), date(2026, 9, 9), 14),
        CourseCalendar(date(2026, 12, 25), date(2026, 9, 9), 14),
        CourseCalendar(date(2026, 9, 25)),
    ):
        (words,) = keys("this week", calendar)
        assert len(words) == 7


def test_months_are_found_by_any_of_their_days() -> None:
    december = CourseCalendar(date(2026, 12, 31))
    for question, key in (("this month", "ǂd12"), ("下个月", "ǂd01"), ("last month", "ǂd11")):
        (unit,) = december.resolve(question)[1]
        assert (unit.words, unit.prefix) == ((key,), True)


def test_what_was_resolved_is_not_searched_as_words_too() -> None:
    rest, _ = CALENDAR.resolve("Is the Zebra Walrus open this week?")
    assert {unit.words for unit in query_units(rest)} & {("this",), ("week",)} == set()
    assert "Zebra Walrus" in rest


def test_a_bare_weekday_only_helps() -> None:
    rest, (unit,) = CALENDAR.resolve("office hours on Monday")
    assert unit.words == ("ǂd0928",)
    assert not unit.is_asked
    assert "Monday" in rest


def test_today_is_the_courses_own() -> None:
    late = datetime(2026, 9, 25, 20, tzinfo=UTC)
    assert today_in("Asia/Shanghai", late) == date(2026, 9, 26)
    assert today_in(None, late) == today_in("No/Where", late) == date(2026, 9, 25)
