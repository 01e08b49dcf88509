"""Column types that keep what databases would refuse, cut or forget.

`CleanText` drops NUL (PostgreSQL refuses it, SQLite tools cut the text there) and replaces
lone surrogates; `TokenIds` packs token ids; `UtcDateTime` keeps the time zone on SQLite.
"""

from __future__ import annotations

import sys
from array import array
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, LargeBinary, Text
from sqlalchemy.types import TypeDecorator


def clean_text(text: str) -> str:
    """`text` without NUL, with U+FFFD in place of code points that UTF-8 cannot carry."""
    text = text.replace("\x00", "")
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


class CleanText(TypeDecorator[str]):
    """Text that every backend can store."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else clean_text(value)


class TokenIds(TypeDecorator[tuple[int, ...]]):
    """Token ids, 4 bytes each, little-endian."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: tuple[int, ...] | None, dialect: Dialect) -> bytes | None:
        if value is None:
            return None
        ids = array("I", value)
        if sys.byteorder == "big":
            ids.byteswap()
        return ids.tobytes()

    def process_result_value(self, value: Any, dialect: Dialect) -> tuple[int, ...] | None:
        if value is None:
            return None
        ids = array("I")
        ids.frombytes(value)
        if sys.byteorder == "big":
            ids.byteswap()
        return tuple(ids)


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a datetime without a time zone cannot be stored")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def utc_now() -> datetime:
    """Now, aware, in UTC."""
    return datetime.now(UTC)
