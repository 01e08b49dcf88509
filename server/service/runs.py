"""Runs: one task and one event log per answer. A run outlives every socket that follows it.

The log is the only buffer: a reader is a cursor into it, so a reader that stalls costs nothing
and catches up with a snapshot.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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
from server.service.events import Event
from server.service.limits import ServiceLimits
from server.service.run_log import RunLog

log = logging.getLogger(__name__)

Produce = Callable[["Run"], Awaitable[None]]
OnCancel = Callable[[FinishType], None]


class Run:
    """One answer in the making. Owned by the event loop's thread."""

    def __init__(self, run_id: str, owner: UserId, key: str | None, max_events: int) -> None:
        self.id = run_id
        self.owner = owner
        self.key = key
        self.conversation: str | None = None
        self.message: str | None = None
        self.cancel_detail: FinishType | None = None
        """Why the run was asked to end; None while nobody asked."""
        self.is_retryable = False
        """The run ended by an error after which the same message may be sent again."""
        self._log = RunLog(run_id, max_events)
        self._listeners: set[RunReader] = set()
        self._on_cancel: OnCancel | None = None

    @property
    def is_finished(self) -> bool:
        return self._log.is_ended

    @property
    def last_seq(self) -> int:
        return self._log.last_seq

    @property
    def text(self) -> str:
        """What this run's deltas so far join to."""
        return self._log.text

    def emit(self, type: str, **fields: Any) -> int:
        """Appends an event, wakes the readers, returns its number.

        Raises ValueError for an unknown type or a missing field, RuntimeError after the end."""
        event = self._log.append(type, fields)
        if type == "accepted":
            self.conversation = fields["conversation"]
            self.message = fields["message"]
        for reader in self._listeners:
            reader.wake()
        return event.seq

    def fail(self, error: ServiceError) -> None:
        """Ends the run with an `error` event; nothing if it has ended already."""
        if not self.is_finished:
            self.is_retryable = error.retryable
            named = {"id": self.key} if self.key is not None else {}
            self.emit("error", **named, **error.event_fields())

    def cancel(self, detail: FinishType = FinishType.CANCELLED) -> None:
        """Asks the generation to end with `detail`; the first reason stays. Idempotent; the
        run still ends by its own `finish`."""
        if self.is_finished or self.cancel_detail is not None:
            return
        self.cancel_detail = detail
        if self._on_cancel is not None:
            self._on_cancel(detail)

    @contextmanager
    def cancelling(self, on_cancel: OnCancel) -> Iterator[None]:
        """Inside the block `cancel` calls `on_cancel`; at once if it was called before."""
        self._on_cancel = on_cancel
        if self.cancel_detail is not None:
            on_cancel(self.cancel_detail)
        try:
            yield
        finally:
            self._on_cancel = None

    def read(self, after_seq: int) -> list[Event]:
        """Events after `after_seq`, without waiting."""
        return self._log.read(after_seq)

    def follow(self, after_seq: int, wake: Callable[[], None]) -> RunReader:
        """A cursor that calls `wake` when there is more. Close it."""
        reader = RunReader(self, after_seq, wake)
        self._listeners.add(reader)
        return reader

    def unfollow(self, reader: RunReader) -> None:
        self._listeners.discard(reader)
        self.settle()

    @property
    def num_bytes(self) -> int:
        """About what the run's log takes in memory once the run has settled."""
        return self._log.num_bytes

    def settle(self) -> None:
        """Folds the log of a run that has ended, unless somebody has not read it all yet."""
        if self.is_finished and not any(reader.has_more for reader in self._listeners):
            self._log.fold_all()

    async def events(self, after_seq: int = 0) -> AsyncGenerator[Event, None]:
        """Replays the events after `after_seq`, then follows until the run has ended."""
        woken = asyncio.Event()
        reader = self.follow(after_seq, woken.set)
        try:
            while True:
                woken.clear()
                for event in reader.take():
                    yield event
                if reader.is_done:
                    return
                if not reader.has_more:
                    await woken.wait()
        finally:
            reader.close()


class RunReader:
    """One reader's cursor into a run's log. Owned by the event loop's thread."""

    __slots__ = ("_cursor", "run", "wake")

    def __init__(self, run: Run, after_seq: int, wake: Callable[[], None]) -> None:
        self.run = run
        self.wake = wake
        self._cursor = min(max(after_seq, 0), run.last_seq)

    @property
    def has_more(self) -> bool:
        return self._cursor < self.run.last_seq

    @property
    def is_done(self) -> bool:
        """The run has ended and its last event was taken."""
        return self.run.is_finished and not self.has_more

    def take(self) -> list[Event]:
        """Everything new."""
        events = self.run.read(self._cursor)
        if events:
            self._cursor = events[-1].seq
        return events

    def close(self) -> None:
        self.run.unfollow(self)


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
    a ServiceError when no new run may begin now."""

    def __init__(
        self, limits: ServiceLimits, admit: Callable[[UserId], Ticket] = _admit_all
    ) -> None:
        self._limits = limits
        self._admit = admit
        self._runs: dict[str, Run] = {}
        self._keys: dict[tuple[UserId, str], Run] = {}
        self._tasks: dict[asyncio.Task[None], Run] = {}
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
            raise ShuttingDownError("The server is shutting down.", retry_after_ms=5000)
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
        task.add_done_callback(self._tasks.pop)
        return run

    def get(self, run_id: str) -> Run | None:
        """The run, running or ended a short while ago."""
        return self._runs.get(run_id)

    def active(self, owner: UserId) -> list[Run]:
        """The owner's runs that have not ended, oldest first."""
        return [run for run in self._tasks.values() if run.owner == owner and not run.is_finished]

    def active_in(self, conversation: str) -> Run | None:
        """The run that answers in a conversation, if one has not ended."""
        for run in self._tasks.values():
            if run.conversation == conversation and not run.is_finished:
                return run
        return None

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
            run.fail(ShuttingDownError("The server is shutting down."))
        for kept in self._ended.values():
            kept.timer.cancel()
        self._ended.clear()

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
            run.fail(ShuttingDownError("The server is shutting down."))
            raise
        except Exception as error:
            if not isinstance(error, ServiceError):
                log.exception("run %s failed", run.id)
            run.fail(from_unknown(error))
        finally:
            ticket.close()
            self._retire(run)

    def _retire(self, run: Run) -> None:
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


_LAST_WORDS_S = 2.0
"""How long a run may take to store its answer after it was told to end at shutdown, and how
long after it was cancelled."""
