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
from typing import Any

from engine.api import FinishType
from server.service.auth import UserId
from server.service.errors import (
    ConversationBusyError,
    InternalError,
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


class RunRegistry:
    """All runs of this process. Owned by the event loop's thread.

    Holds each run's task, and each ended run for `run_log_ttl_s` so that clients can come back."""

    def __init__(self, limits: ServiceLimits) -> None:
        self._limits = limits
        self._runs: dict[str, Run] = {}
        self._keys: dict[tuple[UserId, str], Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: dict[str, asyncio.TimerHandle] = {}
        self._is_closed = False

    @property
    def num_active(self) -> int:
        return len(self._tasks)

    def open(
        self,
        owner: UserId,
        produce: Produce,
        *,
        key: str | None = None,
        conversation: str | None = None,
    ) -> Run:
        """Starts a run and its one task. The same owner and `key` give the same run.

        What `produce` raises becomes the run's one `error` event. `conversation`, where it is
        known already, makes the conversation busy from this moment. Raises
        ConversationBusyError if another run of it has not ended, ShuttingDownError."""
        if key is not None and (known := self._keys.get((owner, key))) is not None:
            return known
        if self._is_closed:
            raise ShuttingDownError("The server is shutting down.", retry_after_ms=5000)
        if conversation is not None and self.active_in(conversation) is not None:
            raise ConversationBusyError("This conversation is still answering.")
        run = Run(f"run_{secrets.token_hex(12)}", owner, key, self._limits.run_log_max_events)
        run.conversation = conversation
        self._runs[run.id] = run
        if key is not None:
            self._keys[owner, key] = run
        task = asyncio.get_running_loop().create_task(self._execute(run, produce), name=run.id)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    def get(self, run_id: str) -> Run | None:
        """The run, running or ended a short while ago."""
        return self._runs.get(run_id)

    def active(self, owner: UserId) -> list[Run]:
        """The owner's runs that have not ended, oldest first."""
        return [run for run in self._runs.values() if run.owner == owner and not run.is_finished]

    def active_in(self, conversation: str) -> Run | None:
        """The run that answers in a conversation, if one has not ended."""
        for run in self._runs.values():
            if run.conversation == conversation and not run.is_finished:
                return run
        return None

    async def shutdown(self, grace_s: float) -> None:
        """Opens no more runs, lets those that run end for `grace_s` seconds, then asks the
        rest to end as `shutdown`, and cancels what does not. Every run has its terminal event
        afterwards. Idempotent."""
        self._is_closed = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for run in self._runs.values():
            run.cancel(FinishType.SHUTDOWN)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_WORDS_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for timer in self._ended.values():
            timer.cancel()
        self._ended.clear()

    async def _execute(self, run: Run, produce: Produce) -> None:
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
            self._retire(run)

    def _retire(self, run: Run) -> None:
        while len(self._ended) >= self._limits.max_kept_runs:
            self._forget(next(iter(self._ended)))
        loop = asyncio.get_running_loop()
        self._ended[run.id] = loop.call_later(self._limits.run_log_ttl_s, self._forget, run.id)

    def _forget(self, run_id: str) -> None:
        timer = self._ended.pop(run_id, None)
        if timer is not None:
            timer.cancel()
        run = self._runs.pop(run_id, None)
        if run is not None and run.key is not None:
            self._keys.pop((run.owner, run.key), None)


_LAST_WORDS_S = 2.0
"""How long a run may take to store its answer after it was told to end at shutdown."""
