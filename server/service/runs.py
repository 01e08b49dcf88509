"""`RunRegistry`: all runs of this process, one task each, and the logs of those that ended."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from engine.api import FinishType
from server.service.admission import Ticket
from server.service.auth import UserId
from server.service.errors import (
    ConversationBusyError,
    InternalError,
    RateLimitedError,
    ServiceError,
    ShuttingDownError,
    from_unknown,
)
from server.service.limits import ServiceLimits
from server.service.run import Run

log = logging.getLogger(__name__)

__all__ = ["Produce", "Run", "RunRegistry"]

Produce = Callable[[Run], Awaitable[None]]

_LAST_WORDS_S = 2.0
"""How long a run may take to store its answer after it was told to end at shutdown, and how
long after it was cancelled."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """An ended run: when it will be forgotten, and what it takes."""

    timer: asyncio.TimerHandle
    num_bytes: int


def _admit_all(owner: UserId) -> Ticket:
    """For a registry that no engine stands behind."""
    return Ticket()


class RunRegistry:
    """All runs of this process. Owned by the event loop's thread.

    Holds each run's task, and each ended run for `run_log_ttl_s` so that clients can come back.
    `admit` gives the owner's run its place, which is given back when the run has ended; it raises
    a ServiceError when no new run may begin now. `on_ended` hears of each run that has ended."""

    def __init__(
        self,
        limits: ServiceLimits,
        admit: Callable[[UserId], Ticket] = _admit_all,
        on_ended: Callable[[Run], None] | None = None,
    ) -> None:
        self._limits = limits
        self._admit = admit
        self._on_ended = on_ended
        self._runs: dict[str, Run] = {}
        self._keys: dict[tuple[UserId, str], Run] = {}
        self._tasks: dict[asyncio.Task[None], Run] = {}
        self._owned: dict[UserId, dict[str, Run]] = {}
        """The runs in `_tasks`, by owner: a run is opened without a look at everybody's."""
        self._ended: dict[str, _Kept] = {}
        self._ended_bytes = 0
        self._is_closed = False

    def open(
        self,
        owner: UserId,
        produce: Produce,
        *,
        key: str | None = None,
        conversation: str | None = None,
    ) -> Run:
        """Starts a run and its one task. The same owner and `key` give the same run.

        What `produce` raises becomes the run's one `error` event. After a retryable one the key
        is free again. `conversation`, where it is known already, makes the conversation busy
        from this moment. Raises ConversationBusyError if another run of it has not ended,
        RateLimitedError if the owner has too many, ShuttingDownError, and what `admit` raises; then
        nothing has happened."""
        if key is not None and (known := self._keys.get((owner, key))) is not None:
            return known
        if self._is_closed:
            raise ShuttingDownError()
        if conversation is not None and self.active_in(conversation) is not None:
            raise ConversationBusyError("This conversation is still answering.")
        if len(self.active(owner)) >= (limit := self._limits.max_runs_per_user):
            raise RateLimitedError(f"{limit} answers of yours are running already.")
        ticket = self._admit(owner)
        run = Run(f"run_{secrets.token_hex(12)}", owner, key, self._limits.run_log_max_events)
        run.conversation = conversation
        self._runs[run.id] = run
        if key is not None:
            self._keys[owner, key] = run
        task = asyncio.get_running_loop().create_task(
            self._execute(run, produce, ticket), name=run.id
        )
        self._tasks[task] = run
        self._owned.setdefault(owner, {})[run.id] = run
        task.add_done_callback(self._task_done)
        return run

    def get(self, run_id: str) -> Run | None:
        """The run, running or ended a short while ago."""
        return self._runs.get(run_id)

    def active(self, owner: UserId) -> list[Run]:
        """The owner's runs that have not ended, oldest first."""
        return [run for run in self._owned.get(owner, {}).values() if not run.is_finished]

    def active_in(self, conversation: str) -> Run | None:
        """The run that answers in a conversation, if one has not ended."""
        return next(iter(self.active_in_any((conversation,))), None)

    def active_in_any(self, conversations: Collection[str]) -> list[Run]:
        """The runs that answer in any of these conversations and have not ended."""
        return [
            run
            for run in self._tasks.values()
            if run.conversation in conversations and not run.is_finished
        ]

    @property
    def num_running(self) -> int:
        """Runs that have not ended."""
        return len(self._tasks)

    async def drain(self, grace_s: float) -> None:
        """Opens no more runs, and lets those that run end for `grace_s` seconds. Idempotent."""
        self._is_closed = True
        await self._wait(grace_s)

    async def shutdown(self, grace_s: float) -> None:
        """Drains, then asks the rest to end as `shutdown`, cancels what does not, and leaves
        what does not heed that either, so that this takes `grace_s` and a few seconds whatever
        a run waits for. Every run has its terminal event afterwards. Idempotent."""
        await self.drain(grace_s)
        for run in self._tasks.values():
            run.cancel(FinishType.SHUTDOWN)
        await self._wait(_LAST_WORDS_S)
        for task in self._tasks:
            task.cancel()
        await self._wait(_LAST_WORDS_S)
        for run in list(self._tasks.values()):
            log.error("run %s could not be ended", run.id)
            run.fail(ShuttingDownError())
        for kept in self._ended.values():
            kept.timer.cancel()
        self._ended.clear()

    def _task_done(self, task: asyncio.Task[None]) -> None:
        run = self._tasks.pop(task)
        runs = self._owned[run.owner]
        del runs[run.id]
        if not runs:
            del self._owned[run.owner]

    async def _wait(self, timeout_s: float) -> None:
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=timeout_s)

    async def _execute(self, run: Run, produce: Produce, ticket: Ticket) -> None:
        try:
            await produce(run)
            if not run.is_finished:
                log.error("run %s: its task returned without a finish", run.id)
                run.fail(InternalError("The answer ended without a result."))
        except asyncio.CancelledError:
            run.fail(ShuttingDownError())
            raise
        except Exception as error:
            if not isinstance(error, ServiceError):
                log.exception("run %s failed", run.id)
            run.fail(from_unknown(error))
        finally:
            ticket.close()
            self._retire(run)

    def _retire(self, run: Run) -> None:
        if self._on_ended is not None:
            self._on_ended(run)
        if run.is_retryable:
            self._free_key(run)
        run.settle()
        num_bytes = run.num_bytes
        while self._ended and (
            len(self._ended) >= self._limits.max_kept_runs
            or self._ended_bytes + num_bytes > self._limits.max_kept_bytes
        ):
            self._forget(next(iter(self._ended)))
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._limits.run_log_ttl_s, self._forget, run.id)
        self._ended[run.id] = _Kept(timer, num_bytes)
        self._ended_bytes += num_bytes

    def _forget(self, run_id: str) -> None:
        kept = self._ended.pop(run_id, None)
        if kept is not None:
            kept.timer.cancel()
            self._ended_bytes -= kept.num_bytes
        run = self._runs.pop(run_id, None)
        if run is not None:
            self._free_key(run)

    def _free_key(self, run: Run) -> None:
        if run.key is not None and self._keys.get((run.owner, run.key)) is run:
            del self._keys[run.owner, run.key]
