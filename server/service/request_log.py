"""One log line for each HTTP request and each run: who, what, how it ended, what it took.

A line never holds what somebody wrote: no path (its pattern instead), no query, no body, no key.
The request id is the one thing in it that a client may choose, and it is checked where it is read.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from engine.api import FinishType
from server.service.exchange import CLIENT_LEFT, Exchange
from server.service.run import Run

log = logging.getLogger(__name__)

FIELDS = "lectern_fields"
"""The attribute of a log record that holds the line's fields; its message is the event's name."""
_QUIET_ROUTES = frozenset({"/health", "/ready", "/metrics"})
"""Asked every few seconds by programs."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def log_exchange(exchange: Exchange) -> None:
    """A request's line."""
    status = exchange.status or CLIENT_LEFT
    fields: dict[str, Any] = {
        "request_id": exchange.id.decode("ascii"),
        "route": exchange.route,
        "method": exchange.method if exchange.method in _METHODS else "other",
        "status": status,
        "ms": round((time.monotonic() - exchange.arrived_s) * 1000, 1),
    }
    if exchange.detail is not None:
        fields["detail"] = exchange.detail
    if exchange.usage is not None:
        fields["prompt_tokens"] = exchange.usage.prompt_tokens
        fields["cached_tokens"] = exchange.usage.cached_tokens
        fields["completion_tokens"] = exchange.usage.completion_tokens
    if exchange.known_caller is not None and exchange.known_caller.key_name is not None:
        fields["key"] = exchange.known_caller.key_name
    is_quiet = exchange.route in _QUIET_ROUTES and status < 500
    is_fault = status >= 500 or exchange.detail == FinishType.ERROR.value
    level = logging.DEBUG if is_quiet else logging.WARNING if is_fault else logging.INFO
    log.log(level, "request", extra={FIELDS: fields})


def log_run(run: Run, key_name: str | None) -> None:
    """A run's line, when it has ended."""
    ending = run.ending or {}
    detail = ending.get("finish_detail")
    usage = ending.get("usage") or {}
    fields: dict[str, Any] = {
        "run": run.id,
        "detail": ending.get("code") if detail is None else detail["type"],
        "ms": round((time.monotonic() - run.opened_s) * 1000, 1),
    }
    if usage:
        fields["prompt_tokens"] = usage["prompt_tokens"]
        fields["cached_tokens"] = usage["prompt_tokens_details"]["cached_tokens"]
        fields["completion_tokens"] = usage["completion_tokens"]
    if key_name is not None:
        fields["key"] = key_name
    level = logging.WARNING if fields["detail"] in ("internal", "error") else logging.INFO
    log.log(level, "run", extra={FIELDS: fields})
