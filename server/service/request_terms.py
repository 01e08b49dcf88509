"""`Terms`: what one request may ask of the queue, and who pays for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from server.service.auth import Access, Caller
from server.service.errors import BadRequestError
from server.service.exchange import Exchange
from server.service.limits import ServiceLimits

INTERACTIVE = 0
BATCH = 10
"""Priorities of `GenerationRequest`: somebody waits for the answer, or nobody does."""

_MAX_USER_CHARS = 128
PRIORITIES = {"interactive": INTERACTIVE, "batch": BATCH}
TIERS = {"auto": None, "default": None, "scale": None, "priority": INTERACTIVE, "flex": BATCH}


@dataclass(frozen=True, slots=True)
class Terms:
    """`deadline_s` is a point of `time.monotonic()`; `priority` as in `GenerationRequest` (lower
    goes first); `user` shares the engine fairly with other users; `account` is whose tokens are
    counted."""

    deadline_s: float
    priority: int = INTERACTIVE
    user: str = ""
    account: str = ""


class TermFields(Protocol):
    """What the bodies of all endpoints that answer have in common."""

    @property
    def timeout(self) -> float | None: ...

    @property
    def priority(self) -> str | None: ...

    @property
    def service_tier(self) -> str | None: ...

    @property
    def user(self) -> str | None: ...


def terms(
    *,
    caller: Caller,
    limits: ServiceLimits,
    arrived_s: float,
    timeout: float | None = None,
    priority: str | None = None,
    service_tier: str | None = None,
    user: str | None = None,
    param_prefix: str = "",
) -> Terms:
    """The terms of a request that came at `arrived_s` (of `time.monotonic()`).

    `timeout`: seconds from its arrival, more than 0 and at most `request_timeout_s`, which is the
    default. `priority`: "interactive" or "batch"; None: what `service_tier` says, where "flex" is
    batch. A caller with no access but BATCH is always batch. `user` None: the caller's own.

    Raises BadRequestError, which names the field (`param_prefix` stands before it) and its
    range."""
    most_s = limits.request_timeout_s
    if timeout is None:
        timeout = most_s
    elif not (math.isfinite(timeout) and 0 < timeout <= most_s):
        raise BadRequestError(
            f"timeout must be more than 0 and at most {most_s:g} seconds, not {timeout:g}",
            param=f"{param_prefix}timeout",
        )
    return Terms(
        arrived_s + timeout,
        _priority(priority, service_tier, caller, param_prefix),
        caller.user if user is None else user,
        caller.user,
    )


def body_terms(
    exchange: Exchange, body: TermFields, limits: ServiceLimits, *, is_open: bool
) -> Terms:
    """The terms of a request over HTTP; `is_open` as in `queue_user`. Raises BadRequestError."""
    return terms(
        caller=exchange.caller,
        limits=limits,
        arrived_s=exchange.arrived_s,
        timeout=body.timeout,
        priority=body.priority,
        service_tier=body.service_tier,
        user=queue_user(exchange.caller, body.user, is_open=is_open),
    )


def queue_user(caller: Caller, asked_for: str | None, *, is_open: bool) -> str:
    """Whose fair share of the engine a request takes: its key's; without keys (`is_open`) whoever
    the caller says that it asks for (OpenAI's `user`), apart from users that we know."""
    if not is_open:
        return caller.user
    return f"client:{asked_for}"[:_MAX_USER_CHARS] if asked_for else ""


def _priority(
    priority: str | None, service_tier: str | None, caller: Caller, param_prefix: str
) -> int:
    if priority is not None and priority not in PRIORITIES:
        raise BadRequestError(
            f'priority must be "interactive" or "batch", not {priority[:40]!r}',
            param=f"{param_prefix}priority",
        )
    if service_tier is not None and service_tier not in TIERS:
        raise BadRequestError(
            f"service_tier must be one of {', '.join(TIERS)}, not {service_tier[:40]!r}",
            param=f"{param_prefix}service_tier",
        )
    if Access.CHAT not in caller.access:
        return BATCH
    if priority is not None:
        return PRIORITIES[priority]
    tier = None if service_tier is None else TIERS[service_tier]
    return INTERACTIVE if tier is None else tier
