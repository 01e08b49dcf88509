"""Whether the server takes a request now. The engine's queue is the only queue."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable

from engine.api import Engine, EngineState
from server.service.bodies import Bodies
from server.service.errors import (
    BadRequestError,
    ModelUnavailableError,
    QueueFullError,
    ServiceError,
    ShuttingDownError,
)
from server.service.limits import ServiceLimits
from server.service.queue_estimate import QueueEstimate
from server.service.rate_limit import RateLimit

_RETRY_FULL_MS = 1000
_MAX_RETRY_FULL_MS = 60_000


class Ticket:
    """The places of one accepted request. Owned by the loop's thread. One without an admission
    stands for work that nobody counts."""

    __slots__ = ("_account", "_admission", "_is_preparing", "_num_sequences", "_prompt_tokens")

    def __init__(self, admission: Admission | None = None, account: str = "") -> None:
        self._admission = admission
        self._account = account
        self._num_sequences = 0
        self._prompt_tokens = 0
        self._is_preparing = False

    def extend(self, *, num_sequences: int, prompt_tokens: int) -> None:
        """Says what the request asks for now that its prompt is known, right before it goes to
        the engine: `num_sequences` answers, the first place included, and so many tokens. All is
        granted or nothing.

        Raises BadRequestError, RateLimitedError, QueueFullError, ShuttingDownError,
        ModelUnavailableError."""
        admission = self._admission
        if admission is None:
            return
        self._end_preparing()
        admission.check_engine()
        admission.check_room(num_sequences)
        self._take(num_sequences - self._num_sequences, prompt_tokens)

    def close(self) -> None:
        """Gives the places back. Idempotent."""
        self._close(refund=False)

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        # Who is refused, or told of a failure, has not used its prompt.
        self._close(refund=isinstance(error, ServiceError))

    def open(self, *, num_sequences: int, prompt_tokens: int, is_preparing: bool) -> None:
        """Takes the first places; `Admission` does, once."""
        assert self._admission is not None
        self._take(num_sequences, prompt_tokens)
        self._is_preparing = is_preparing
        self._admission.num_preparing += is_preparing

    def _take(self, num_sequences: int, prompt_tokens: int) -> None:
        assert self._admission is not None
        self._admission.rates.take(
            self._account,
            num_sequences=num_sequences,
            prompt_tokens=prompt_tokens,
            num_held=self._num_sequences,
        )
        self._num_sequences += num_sequences
        self._prompt_tokens += prompt_tokens

    def _close(self, *, refund: bool) -> None:
        admission = self._admission
        if admission is None:
            return
        self._end_preparing()
        self._admission = None
        admission.rates.give_back(
            self._account,
            num_sequences=self._num_sequences,
            prompt_tokens=self._prompt_tokens if refund else 0,
        )

    def _end_preparing(self) -> None:
        if self._is_preparing:
            assert self._admission is not None
            self._is_preparing = False
            self._admission.num_preparing -= 1


class Admission:
    """Says no at once, before any work is done for a request. Owned by the loop's thread."""

    def __init__(
        self,
        engine: Engine,
        limits: ServiceLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        limits = limits or ServiceLimits()
        self._engine = engine
        self._is_draining = False
        self.rates = RateLimit(
            limits.max_concurrent_per_user, limits.tokens_per_minute_per_user, clock
        )
        self.queue = QueueEstimate()
        self._limits = limits
        self.bodies = Bodies(limits)
        self._num_preparing = 0
        self._all_prepared = asyncio.Event()
        self._all_prepared.set()

    @property
    def is_ready(self) -> bool:
        """New work would be taken."""
        return not self._is_draining and self._engine.state is EngineState.READY

    @property
    def state(self) -> str:
        """The engine's state, or `draining` as soon as the server takes no new work."""
        if self._is_draining and self._engine.state is EngineState.READY:
            return EngineState.DRAINING.value
        return self._engine.state.value

    @property
    def num_preparing(self) -> int:
        """Requests that were let in and are not in the engine yet."""
        return self._num_preparing

    @num_preparing.setter
    def num_preparing(self, number: int) -> None:
        self._num_preparing = number
        if number:
            self._all_prepared.clear()
        else:
            self._all_prepared.set()

    def drain(self) -> None:
        """From now on everything new is refused, also what has not arrived whole. Idempotent."""
        self._is_draining = True
        self.bodies.drain()

    async def prepared(self, timeout_s: float) -> None:
        """Returns when every request that was let in has gone to the engine or has been refused,
        and after `timeout_s` at the latest."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._all_prepared.wait()

    def check(self) -> None:
        """For new work. Raises ShuttingDownError or ModelUnavailableError."""
        if self._is_draining:
            raise ShuttingDownError()
        self.check_engine()

    def check_room(self, num_sequences: int = 1, num_preparing: int = 0) -> None:
        """Whether the engine can hold `num_sequences` answers more, behind `num_preparing`
        others. It counts once more when it gets them: its word is the last.

        Raises QueueFullError, and BadRequestError for more than it could ever hold."""
        limit = self._engine.max_requests
        if num_sequences > limit:
            raise BadRequestError(
                f"The request asks for {num_sequences} answers, and this server holds at most "
                f"{limit} at once.",
                param="n",
            )
        taken = self._engine.num_requests + num_preparing
        if taken + num_sequences > limit:
            raise QueueFullError(
                f"{taken} requests are running or waiting already, and {limit} is the limit.",
                retry_after_ms=self._retry_full_ms(taken + num_sequences - limit),
            )

    def enter(
        self,
        account: str,
        *,
        num_sequences: int = 1,
        prompt_tokens: int = 0,
        is_preparing: bool = True,
    ) -> Ticket:
        """Places for one request, until the ticket is closed; `Ticket.extend` says more once its
        prompt is known. `is_preparing`: until then it counts as one that waits.

        Raises QueueFullError, RateLimitedError for an account that has too much running or has
        taken too many tokens, BadRequestError for more answers than there can ever be."""
        self.check_room(num_sequences, self.num_preparing if is_preparing else 0)
        ticket = Ticket(self, account)
        ticket.open(
            num_sequences=num_sequences, prompt_tokens=prompt_tokens, is_preparing=is_preparing
        )
        return ticket

    def enter_tokenizer(self, account: str) -> Ticket:
        """A place for work that the tokenizer does and the engine does not. Raises
        RateLimitedError."""
        ticket = Ticket(self, account)
        ticket.open(num_sequences=1, prompt_tokens=0, is_preparing=False)
        return ticket

    def enter_run(self, account: str) -> Ticket:
        """`check`, then `enter`; a run may take its time before it asks the engine."""
        self.check()
        return self.enter(account, is_preparing=False)

    def charge(self, account: str, num_tokens: int) -> None:
        """Takes tokens off an account that were used already."""
        self.rates.charge(account, num_tokens)

    def check_engine(self) -> None:
        """For work that was accepted, perhaps before the drain began: only the engine counts.
        Raises ShuttingDownError or ModelUnavailableError."""
        state = self._engine.state
        if state in (EngineState.DRAINING, EngineState.STOPPED):
            raise ShuttingDownError()
        if state is EngineState.STARTING:
            raise ModelUnavailableError("The model is still loading.", retry_after_ms=2000)
        if state is EngineState.DEAD:
            raise ModelUnavailableError("The engine has failed; the server must be restarted.")

    def _retry_full_ms(self, num_ends: int) -> int:
        """When so many places are likely to be free."""
        wait_s = self.queue.wait_s(num_ends)
        if wait_s is None:
            return _RETRY_FULL_MS
        return min(max(math.ceil(wait_s * 1000), _RETRY_FULL_MS), _MAX_RETRY_FULL_MS)
