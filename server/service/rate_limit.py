"""`RateLimit`: how much each account has running, and how many tokens it may still take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from server.service.errors import BadRequestError, RateLimitedError

_SWEEP_AT = 256
"""Accounts that are kept before idle ones are looked for."""
_RETRY_RUNNING_MS = 1000
"""Nobody knows when an answer of the account will end: clients look again soon."""


class _Account:
    __slots__ = ("num_running", "tokens", "updated_s")

    def __init__(self, tokens: float, now_s: float) -> None:
        self.num_running = 0
        self.tokens = tokens
        """What is left in the bucket; below 0, the account took more than it may and waits."""
        self.updated_s = now_s


class RateLimit:
    """Owned by the event loop's thread. An account that has nothing running and a full bucket is
    forgotten: what is kept is bounded by who was active in the last minutes.

    The bucket holds one minute's tokens and fills evenly. A prompt must find its tokens there
    (one that is larger than the bucket must find it full); what is sampled is taken at the end,
    when its number is known, and may leave a debt."""

    def __init__(
        self,
        max_running: int,
        tokens_per_minute: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_running = max_running
        self._capacity = tokens_per_minute
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._sweep_at = _SWEEP_AT

    @property
    def num_accounts(self) -> int:
        """Accounts that are remembered."""
        return len(self._accounts)

    def num_running(self, account: str) -> int:
        """Answers of the account that run or wait."""
        known = self._accounts.get(account)
        return 0 if known is None else known.num_running

    def tokens_left(self, account: str) -> float:
        """What its bucket holds now; infinite without a limit."""
        if self._capacity is None:
            return math.inf
        known = self._accounts.get(account)
        return float(self._capacity) if known is None else self._fill(known)

    def take(
        self, account: str, *, num_sequences: int, prompt_tokens: int, num_held: int = 0
    ) -> None:
        """Takes places and tokens, or neither. `num_held`: places that the same request has
        already.

        Raises BadRequestError for more answers than the account may ever have running,
        RateLimitedError with the time after which it is worth trying again."""
        if num_held + num_sequences > self._max_running:
            raise BadRequestError(
                f"The request asks for {num_held + num_sequences} answers, and one caller may "
                f"have at most {self._max_running} running.",
                param="n",
            )
        known = self._accounts.get(account)
        num_running = 0 if known is None else known.num_running
        if num_running + num_sequences > self._max_running:
            raise RateLimitedError(
                f"{num_running - num_held} answers of yours are running or waiting, and "
                f"{self._max_running} is the limit.",
                retry_after_ms=_RETRY_RUNNING_MS,
            )
        self._check_tokens(account, prompt_tokens)
        if known is None:
            known = self._open(account)
        known.num_running += num_sequences
        if self._capacity is not None:
            known.tokens -= prompt_tokens

    def give_back(self, account: str, *, num_sequences: int, prompt_tokens: int = 0) -> None:
        """Returns places, and the tokens of a prompt that was not used."""
        known = self._accounts[account]
        known.num_running -= num_sequences
        if self._capacity is not None:
            known.tokens = min(self._fill(known) + prompt_tokens, float(self._capacity))
        self._forget_if_idle(account, known)

    def charge(self, account: str, num_tokens: int) -> None:
        """Takes tokens that were used already, whatever the bucket holds."""
        if self._capacity is None or num_tokens == 0:
            return
        known = self._accounts.get(account) or self._open(account)
        self._fill(known)
        known.tokens -= num_tokens

    def _check_tokens(self, account: str, num_tokens: int) -> None:
        capacity = self._capacity
        if capacity is None:
            return
        # Without a single token left nothing is taken, a prompt of unknown size neither.
        needed = min(max(num_tokens, 1), capacity)
        left = self.tokens_left(account)
        if left >= needed:
            return
        wait_s = (needed - left) * 60 / capacity
        raise RateLimitedError(
            f"You may take {capacity} tokens a minute; this request needs {needed} of them, and "
            f"{max(0, int(left))} are left.",
            retry_after_ms=math.ceil(wait_s * 1000),
        )

    def _open(self, account: str) -> _Account:
        if len(self._accounts) >= self._sweep_at:
            for name, known in list(self._accounts.items()):
                self._forget_if_idle(name, known)
            # So that a sweep is paid for by as many new accounts as it looks at.
            self._sweep_at = max(_SWEEP_AT, 2 * len(self._accounts))
        opened = _Account(float(self._capacity or 0), self._clock())
        self._accounts[account] = opened
        return opened

    def _fill(self, known: _Account) -> float:
        assert self._capacity is not None
        now_s = self._clock()
        filled = known.tokens + (now_s - known.updated_s) * self._capacity / 60
        known.tokens = min(filled, float(self._capacity))
        known.updated_s = now_s
        return known.tokens

    def _forget_if_idle(self, account: str, known: _Account) -> None:
        is_full = self._capacity is None or self._fill(known) >= self._capacity
        if known.num_running == 0 and is_full:
            del self._accounts[account]
