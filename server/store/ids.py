"""Ids of rows: text that sorts by time of making, unique across processes; and many at once."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Sequence

_AT_ONCE = 500
"""Ids of one statement: SQLite takes 32,766 parameters in one, PostgreSQL 32,767."""

_lock = threading.Lock()
_last_us = 0


def new_id() -> str:
    """26 hex digits: 13 of the time in microseconds, never twice the same in one process,
    then 52 random bits. Ordering rows by id orders them by when they were made."""
    global _last_us
    with _lock:
        _last_us = max(_last_us + 1, time.time_ns() // 1000)
        stamp = _last_us
    return f"{stamp:013x}{secrets.randbits(52):013x}"


def batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """The ids in order, in parts that fit into a statement."""
    for start in range(0, len(ids), _AT_ONCE):
        yield ids[start : start + _AT_ONCE]
