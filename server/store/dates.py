"""Dates and kinds of facts in a text, and the words under which they are found. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date

import regex

from server.store.concepts import KEY_MARK
from server.store.numbered_things import alternatives

WEEKDAYS: Mapping[str, int] = {
    name: day
    for day, names in enumerate(
        (
            *(("monday", "mon", "一"), ("tuesday", "tue", "二"), ("wednesday", "wed", "三")),
            *(("thursday", "thu", "四"), ("friday", "fri", "五"), ("saturday", "sat", "六")),
            ("sunday", "sun", "日", "天"),
        )
    )
    for name in names
}
"""Names of weekdays and their numbers, as `date.weekday` counts. Chinese ones are what follows
周 or 星期."""
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
_MONTH_NUMBERS = {name: n for n, name in enumerate(_MONTHS, start=1)}
_MONTH_NUMBERS |= {name[:3]: n for name, n in _MONTH_NUMBERS.items()} | {"sept": 9}
_MONTH = alternatives(list(_MONTH_NUMBERS))
_DATE_PATTERNS = (
    regex.compile(r"(?<!\d)\d{4}[\-/.](?P<month>\d{1,2})[\-/.](?P<day>\d{1,2})(?!\d)"),
    regex.compile(r"(?<!\d)(?P<month>\d{1,2})\s*月\s*(?P<day>\d{1,2})\s*[日号]"),
    regex.compile(rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month>{_MONTH})\b"),
    regex.compile(rf"\b(?P<month>{_MONTH})\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?![:：])"),
)


def date_key(day: date) -> str:
    """The word under which texts that name this day of the year are found."""
    return _date_key(day.month, day.day)


def month_prefix(month: int) -> str:
    """What the words of all days of a month begin with."""
    return f"{KEY_MARK}d{month:02}"


def _date_key(month: int, day: int) -> str:
    return f"{KEY_MARK}d{month:02}{day:02}"


def dates(folded: str) -> Iterator[tuple[str, int, int]]:
    """(key, start, end) of each date, whose year does not matter: a course has one."""
    for pattern in _DATE_PATTERNS:
        for match in pattern.finditer(folded):
            month = _MONTH_NUMBERS.get(match["month"]) or int(match["month"])
            day = int(match["day"])
            if 1 <= month <= 12 and 1 <= day <= 31:
                yield _date_key(month, day), match.start(), match.end()


_NUMBER_WORD = r"(?:one|two|three|four|five|six|seven|eight|nine|ten)"

FACTS = (
    (
        KEY_MARK + "hasdate",
        regex.compile("|".join(pattern.pattern for pattern in _DATE_PATTERNS)),
        regex.compile(
            # Not "what happens when I add one".
            r"^\W*(?:and |but |so )?when\b[^,]*$|\bwhen\W*$"
            r"|\b(?:by|until|since|know|tell|say) when\b"
            r"|\bwhen(?: exactly)? (?:is|are|was|were|do|does|did|can|could|will|must|may|should)\b"
            r"|\b(?:what|which) (?:day|date)\b|\bdeadline|\bdue\b|\bddl\b"
            r"|什么时候|何时|哪一?天|几[号月]|截[止至]"
        ),
    ),
    (
        KEY_MARK + "hasclock",
        regex.compile(r"\b\d\d?[:：]\d\d\b|\b\d\d? ?[ap]\.?m\b|\d\s*点"),
        regex.compile(r"\bwhat time\b|\bhow late\b|\bwhen (?:is|are)\b|几点|什么时候"),
    ),
    (
        KEY_MARK + "hasduration",
        regex.compile(
            r"(?:\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|half an?))[\s\-]*"
            r"(?:milliseconds?|ms|seconds?|minutes?|hours?|days?|weeks?|months?)\b"
            r"|[\d一二三四五六七八九十两半]\s*个?半?(?:毫秒|秒|分钟|小时|天|周|星期|月)"
        ),
        regex.compile(
            r"\bhow (?:long|soon)\b|\bhow many (?:days|hours|minutes)\b|多久|多长时间|几天"
        ),
    ),
    (
        KEY_MARK + "haspercentage",
        regex.compile(r"\d\s*[%‰]|\bper ?cent\b|百分之|[一二三四五六七八九十\d]\s*[成折]"),
        regex.compile(
            r"\bpercent|\bpercentage|\bhow much .{0,60}\b(?:weigh|count|worth)|\bweights?\b"
            r"|占多少|占比|比例|百分|几成|几折|多大比重"
        ),
    ),
    (
        KEY_MARK + "hassize",
        regex.compile(r"\d\s*(?:[kmg]i?b|bytes?|字节|兆)\b|\d\s*字节"),
        regex.compile(r"\bhow (?:big|large)\b|\bsize of\b|\bhow many bytes\b|多大|多少字节"),
    ),
    (
        KEY_MARK + "hasprice",
        regex.compile(r"[€$£¥￥]\s*\d|\d\s*(?:€|euros?|dollars?|yuan|元(?![件素])|块钱)"),
        regex.compile(r"\bhow much\b.{0,60}\bcosts?\b|\bprice\b|多少钱|价格|几块钱"),
    ),
    (
        KEY_MARK + "hasheadcount",
        regex.compile(
            rf"(?:\d|\b{_NUMBER_WORD})\s+(?:people|persons|students|members)\b"
            r"|\b(?:team|group|pair)s? of\b|[\d一二三四五六七八九十两]\s*[人名位]"
        ),
        regex.compile(r"\bhow many (?:people|persons|students|members)\b|几个?人|多少人|几名"),
    ),
    (
        KEY_MARK + "haslength",
        regex.compile(
            rf"(?:\d|\b{_NUMBER_WORD})\s+(?:pages?|sheets?|words)\b"
            r"|[\d一二三四五六七八九十两]\s*[页字张]"
        ),
        regex.compile(r"\bhow many (?:pages|words|sheets)\b|几页|多少页|多少字|几张"),
    ),
)
"""(key, what a text that holds it looks like, what asks for it): a question that asks for a kind
of fact is answered by a text that has one."""
FACT_KEYS = frozenset(key for key, _, _ in FACTS)
