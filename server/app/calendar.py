"""`CourseCalendar`: which dates and weeks "this week", "tomorrow" and "下周四" mean. Pure.

What is found is asked for by the words that `server.store.dates` gives to dates and numbered
weeks, so a schedule's row, a deadline and the material of a week are found like anything else.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import regex

from server.store.analysis import QueryUnit, fold
from server.store.dates import WEEKDAYS, date_key, month_prefix
from server.store.numbered_things import week_key

_SOON_DAYS = 14
"""How far "next lab" and "upcoming" reach."""
_EXACT, _BROAD = 1.5, 1.0
"""Weights: of a day, and of a week or a month."""

_WEEKDAY = "|".join(sorted((name for name in WEEKDAYS if name.isascii()), key=len, reverse=True))
_DAYS = {
    "today": 0,
    "tonight": 0,
    "tomorrow": 1,
    "yesterday": -1,
    "今天": 0,
    "今日": 0,
    "今晚": 0,
    "明天": 1,
    "明日": 1,
    "后天": 2,
    "昨天": -1,
}
_PATTERN = regex.compile(
    r"(?P<now>\b(?:which|what) week (?:of (?:the )?\w+ )?(?:is (?:it|this)|are we(?: in)?)\b"
    r"(?: now\b)?"
    r"|(?:现在|今天|目前|这周|本周)是?(?:这?学期|课程|教学)?的?第几周|第几周了)"
    rf"|\b(?P<day>today|tonight|tomorrow|yesterday)\b"
    rf"|(?P<day>今天|今日|今晚|明天|明日|后天|昨天)"
    rf"|\b(?P<which>this|next|last|coming)\s+(?P<weekday>{_WEEKDAY})\b"
    rf"|(?P<which>这个?|本|下个?|上个?)(?:周|星期|礼拜)(?P<weekday>[一二三四五六日天])"
    rf"|\b(?P<which>this|next|last|coming)\s+(?P<span>week|month)\b"
    rf"|(?P<which>这个?|本|下个?|上个?)(?P<span>周|星期|礼拜|月)(?!末)"
    rf"|\b(?P<weekday>{_WEEKDAY})s?\b|(?:周|星期|礼拜)(?P<weekday>[一二三四五六日天])"
    rf"|(?P<soon>\b(?:next|upcoming|soon|currently|right now|now|still have|left until)\b"
    rf"|下一?次|最近|马上|接下来|现在|还有几天|还剩几天)"
)


@dataclass(frozen=True, slots=True)
class CourseCalendar:
    """A course's weeks as seen on the day `today`. `starts_on` lies in week 1; without it weeks
    have no numbers. `num_weeks` is None where the term's end is not known."""

    today: date
    starts_on: date | None = None
    num_weeks: int | None = None

    def week_of(self, day: date) -> int | None:
        """The number of the week that `day` is in; None outside of the term."""
        if self.starts_on is None:
            return None
        week = (_monday(day) - _monday(self.starts_on)).days // 7 + 1
        return week if 1 <= week <= (self.num_weeks or week) else None

    def resolve(self, question: str) -> tuple[str, list[QueryUnit]]:
        """The question without its words for times, and what these ask for."""
        folded = fold(question)
        rest = unicodedata.normalize("NFKC", question)
        if len(rest) != len(folded):
            rest = folded  # places differ, as with some ligatures
        units: list[QueryUnit] = []
        for match in _PATTERN.finditer(folded):
            unit = self._unit(match)
            units.append(unit)
            if unit.is_asked:
                start, end = match.span()
                rest = rest[:start] + " " * (end - start) + rest[end:]
        return rest, units

    def _unit(self, match: regex.Match[str]) -> QueryUnit:
        if match["now"]:
            return self._span("week", 0)
        if match["day"]:
            day = self.today + timedelta(days=_DAYS[match["day"]])
            return QueryUnit((date_key(day),), _EXACT, is_number=True)
        if match["weekday"]:
            return self._weekday(WEEKDAYS[match["weekday"]], match["which"])
        if match["span"]:
            return self._span(match["span"], _shift(match["which"]))
        soon = [self.today + timedelta(days=n) for n in range(_SOON_DAYS)]
        return QueryUnit(tuple(map(date_key, soon)), _BROAD, is_asked=False)

    def _weekday(self, weekday: int, which: str | None) -> QueryUnit:
        coming = self.today + timedelta(days=(weekday - self.today.weekday()) % 7)
        if which is None:
            # Most likely the coming one, but office hours "on Monday" are every week's.
            return QueryUnit((date_key(coming),), _BROAD, is_asked=False)
        days = {_monday(self.today) + timedelta(days=7 * _shift(which) + weekday)}
        if which in ("next", "coming"):
            days.add(coming)  # both are said
        return QueryUnit(tuple(map(date_key, sorted(days))), _EXACT, is_number=True)

    def _span(self, span: str, shift: int) -> QueryUnit:
        if span in ("month", "月"):
            month = (self.today.month - 1 + shift) % 12 + 1
            return QueryUnit((month_prefix(month),), _BROAD, prefix=True, is_number=True)
        first = _monday(self.today) + timedelta(days=7 * shift)
        week = self.week_of(first)
        keys = [date_key(first + timedelta(days=n)) for n in range(7)]
        keys += [week_key(week)] if week is not None else []
        return QueryUnit(tuple(keys), _BROAD, is_number=True)


def today_in(timezone: str | None, now: datetime) -> date:
    """The date at `now` (aware) where the course is held; UTC's when the zone is not known."""
    return now.astimezone(_zone(timezone)).date()


def _zone(timezone: str | None) -> tzinfo:
    try:
        return ZoneInfo(timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())


def _shift(which: str) -> int:
    """Weeks or months from the present one."""
    if which.startswith(("next", "下")):
        return 1
    return -1 if which.startswith(("last", "上")) else 0
