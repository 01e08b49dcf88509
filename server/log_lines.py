"""How log lines look: for people, or one JSON object each. A record is one line either way, except
for the traceback of a bug, which only text has on lines of its own.

What an exception says may quote what somebody wrote, so a line has its kind and where it was
raised, not its words. Libraries are heard from `warning` up whatever the level is: at `debug` some
write each frame and each SQL parameter.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal

from server.service.request_log import FIELDS

OWN_LOGGERS = ("server", "engine", "__main__")
_PLAIN = re.compile(r"[A-Za-z0-9_./:{}@+-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def configure_logging(level: str, line_format: Literal["text", "json"]) -> None:
    """Sends every log line to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if line_format == "json" else TextLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for name in OWN_LOGGERS:
        logging.getLogger(name).setLevel(level.upper())


class TextLines(logging.Formatter):
    """`2026-01-31 12:00:00,000 INFO server.x: words`, or `… INFO request route=/v1/models …`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, FIELDS, None)
        head = f"{self.formatTime(record)} {record.levelname}"
        if fields is None:
            line = f"{head} {record.name}: {_one_line(_words(record))}"
        else:
            line = " ".join((head, record.msg, *(f"{k}={_value(v)}" for k, v in fields.items())))
        return line + "\n" + self.formatException(record.exc_info) if record.exc_info else line

    def formatException(self, exc_info: _ExcInfo) -> str:
        return _traceback(exc_info)


class JsonLines(logging.Formatter):
    """`{"ts": …, "level": …, "event": …, …}`; `event` is `log` for a line in words."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, FIELDS, None)
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": "log" if fields is None else record.msg,
        }
        if fields is None:
            line |= {"logger": record.name, "message": _words(record)}
        else:
            line |= fields
        if record.exc_info:
            line["traceback"] = _traceback(record.exc_info)
        return json.dumps(line)


def _words(record: logging.LogRecord) -> str:
    words = record.getMessage()
    # asyncio lists below its first line the objects that an error was about, with what they hold.
    return words.partition("\n")[0] if record.name == "asyncio" else words


def _one_line(text: str) -> str:
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def _value(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _traceback(exc_info: _ExcInfo) -> str:
    """Kinds and places of an exception and of those behind it; of an OSError its number's words."""
    lines: list[str] = []
    error, seen = exc_info[1], set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        known = f" ({error.strerror})" if isinstance(error, OSError) and error.errno else ""
        places = "".join(traceback.format_tb(error.__traceback__)).rstrip()
        lines.append(f"{kind}{known}\n{places}".rstrip())
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\nbecause of ".join(lines)
