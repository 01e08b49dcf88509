"""`Terms`: what one request may ask of the queue, and who pays for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Terms:
    """`deadline_s` is a point of `time.monotonic()`; `priority` as in `GenerationRequest` (lower
    goes first); `user` shares the engine fairly with other users; `account` is whose tokens are
    counted."""

    deadline_s: float
    priority: int = 0
    user: str = ""
    account: str = ""
