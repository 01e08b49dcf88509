"""What a teacher may set in a material: read from texts, refused by name. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import regex

from server.app.materials.decoding import ENCODINGS
from server.app.materials.naming import KINDS, MAX_WEEK, Kind
from server.service.errors import BadRequestError

MAX_TITLE_CHARS = 300
_CONTROL = regex.compile(r"[\p{Cc}\p{Bidi_Control}]")
_FLAGS = dict.fromkeys(("true", "1", "on", "yes"), True) | dict.fromkeys(
    ("false", "0", "off", "no"), False
)


def read_title(given: str) -> str:
    """A title in one line, without controls, among them those that turn text round. Raises
    BadRequestError."""
    title: str = _CONTROL.sub("", " ".join(given.split()))
    if not 1 <= len(title) <= MAX_TITLE_CHARS:
        raise BadRequestError(
            f"title must have 1 to {MAX_TITLE_CHARS} characters.",
            param="title",
            message_zh=f"标题须为 1 至 {MAX_TITLE_CHARS} 个字符。",
        )
    return title


def read_flag(given: str, param: str) -> bool:
    """A field of a form that says yes or no. Raises BadRequestError."""
    word = given.strip().lower()
    if word not in _FLAGS:
        raise BadRequestError(
            f"{param} must be true or false.",
            param=param,
            message_zh=f"{param} 须为 true 或 false。",
        )
    return _FLAGS[word]


def read_kind(given: str) -> Kind:
    """A kind of material. Raises BadRequestError."""
    found = next((kind for kind in KINDS if kind == given), None)
    if found is None:
        raise BadRequestError(
            f"kind must be one of {', '.join(KINDS)}.",
            param="kind",
            message_zh=f"类型须为 {'、'.join(KINDS)} 之一。",
        )
    return found


def read_week(given: str | int) -> int:
    """A week's number. Raises BadRequestError."""
    is_number = isinstance(given, int) or (given.isdecimal() and len(given) < 4)
    week = int(given) if is_number else 0
    if not 1 <= week <= MAX_WEEK:
        raise BadRequestError(
            f"week must be a whole number from 1 to {MAX_WEEK}.",
            param="week",
            message_zh=f"周次须为 1 至 {MAX_WEEK} 的整数。",
        )
    return week


def read_encoding(given: str) -> str:
    """An encoding that a text may be read in. Raises BadRequestError."""
    encoding = given.strip().lower()
    if encoding not in ENCODINGS:
        raise BadRequestError(
            f"encoding must be one of {', '.join(ENCODINGS)}.",
            param="encoding",
            message_zh=f"编码须为 {'、'.join(ENCODINGS)} 之一。",
        )
    return encoding


def read_visible_from(given: str, timezone: str | None) -> datetime:
    """A moment in ISO 8601, or a date: midnight in `timezone` (None: UTC), as are moments
    without an offset. Raises BadRequestError."""
    try:
        if len(given) == len("2026-10-01"):
            moment = datetime.combine(date.fromisoformat(given), time())
        else:
            moment = datetime.fromisoformat(given)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=_zone(timezone))
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadRequestError(
            "visible_from must be a date or a moment, as in 2026-10-01 or 2026-10-01T08:00+08:00.",
            param="visible_from",
            message_zh="开放时间须为日期或时刻，例如 2026-10-01 或 2026-10-01T08:00+08:00。",
        ) from None


def _zone(name: str | None) -> ZoneInfo:
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")
