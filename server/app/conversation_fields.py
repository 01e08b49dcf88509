"""What a request about one's conversations may name: read from texts, refused by name. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import regex

from server.app.titles import MAX_TITLE_CHARS, one_line
from server.service.errors import BadRequestError
from server.store.conversations import ListPlace

MOST_LISTED = 200
_MOST_SEARCHED_CHARS = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLACE = regex.compile(r"(\d{1,16})-([A-Za-z0-9_\-]{1,64})", regex.ASCII)


def read_title(given: str) -> str:
    """A title on one line. Raises BadRequestError."""
    title = one_line(given)
    if not 1 <= len(title) <= MAX_TITLE_CHARS:
        raise BadRequestError(
            f"title must have 1 to {MAX_TITLE_CHARS} characters.",
            param="title",
            message_zh=f"标题须为 1 至 {MAX_TITLE_CHARS} 个字符。",
        )
    return title


def num_listed(query: Mapping[str, str]) -> int:
    """How many conversations a page of the list has. Raises BadRequestError."""
    text = query.get("limit") or str(MOST_LISTED)
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= MOST_LISTED):
        raise BadRequestError(f"limit must be from 1 to {MOST_LISTED}.", param="limit")
    return int(text)


def searched_text(query: Mapping[str, str]) -> str | None:
    """What is looked for; None: nothing. Raises BadRequestError."""
    text = query.get("q", "").strip()
    if len(text) > _MOST_SEARCHED_CHARS:
        raise BadRequestError(
            f"q has more than {_MOST_SEARCHED_CHARS} characters.",
            param="q",
            message_zh=f"搜索内容不能超过 {_MOST_SEARCHED_CHARS} 个字符。",
        )
    if "\0" in text:
        raise BadRequestError("q holds a NUL character.", param="q")
    return text or None


def place_text(place: ListPlace) -> str:
    """A place in the list as `next` tells it."""
    return f"{(place.updated_at - _EPOCH) // timedelta(microseconds=1)}-{place.id}"


def list_place(query: Mapping[str, str]) -> ListPlace | None:
    """The place that `before` names; None: the beginning. Raises BadRequestError."""
    text = query.get("before", "").strip()
    if not text:
        return None
    if (match := _PLACE.fullmatch(text)) is None:
        raise BadRequestError("before must be the next of a page of this list.", param="before")
    return ListPlace(_EPOCH + timedelta(microseconds=int(match[1])), match[2])
