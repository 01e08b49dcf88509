"""`Run`: one answer in the making, and `RunReader`: one reader's place in its log.

The log is the only buffer: a reader is a cursor into it, so a reader that stalls costs nothing
and catches up with a snapshot.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from engine.api import FinishType
from server.service.abandonment import Abandonment
from server.service.auth import UserId
from server.service.errors import ServiceError
from server.service.events import Event
from server.service.run_log import RunLog

OnCancel = Callable[[FinishType], None]

MAX_WRITE_BYTES = 256 << 10
"""Of events in one go: after so much a client must show that it reads before it gets more."""


class Run:
    """Outlives every socket that follows it, unless it is told not to. Owned by the event loop's
    thread."""

    def __init__(self, run_id: str, owner: UserId, key: str | None, max_events: int) -> None:
        self.id = run_id
        self.owner = owner
        self.key = key
        self.conversation: str | None = None
        self.message: str | None = None
        self.cancel_detail: FinishType | None = None
        """Why the run was asked to end; None while nobody asked."""
        self.opened_s = time.monotonic()
        self.is_retryable = False
        """The run ended by an error after which the same message may be sent again."""
        self.ending: Mapping[str, Any] | None = None
        """The fields of the event that ended the run."""
        self._log = RunLog(run_id, max_events)
        self._listeners: set[RunReader] = set()
        self._on_cancel: OnCancel | None = None
        self._abandonment: Abandonment | None = None

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

    @property
    def num_readers(self) -> int:
        """Who follows this run now."""
        return len(self._listeners)

    def emit(self, type: str, **fields: Any) -> int:
        """Appends an event, wakes the readers, returns its number.

        Raises ValueError for an unknown type or a missing field, RuntimeError after the end."""
        event = self._log.append(type, fields)
        if type == "accepted":
            self.conversation = fields["conversation"]
            self.message = fields["message"]
        if self._log.is_ended:
            self.ending = fields
            if self._abandonment is not None:
                self._abandonment.stop()
        for reader in self._listeners:
            reader.wake()
        return event.seq

    def emit_delta(self, text: str) -> None:
        """`emit("delta", text=text)`, for the hot path. Raises RuntimeError after the end."""
        self._log.append_delta(text)
        for reader in self._listeners:
            reader.wake()

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

    def abandon_after(self, grace_s: float | None) -> None:
        """The run is to end as `client_gone` when nobody has followed it for `grace_s` seconds,
        counted from now if nobody does. None: it goes on alone, which is how it begins. The last
        call counts."""
        if self._abandonment is not None:
            self._abandonment.stop()
            self._abandonment = None
        if grace_s is not None:
            self._abandonment = Abandonment(grace_s, lambda: self.cancel(FinishType.CLIENT_GONE))
            self._look_for_readers()

    def read(self, after_seq: int) -> list[Event]:
        """Events after `after_seq`, without waiting."""
        return self._log.read(after_seq)

    def follow(self, after_seq: int, wake: Callable[[], None]) -> RunReader:
        """A cursor that calls `wake` when there is more. Close it."""
        reader = RunReader(self, self._log, after_seq, wake)
        self._listeners.add(reader)
        self._look_for_readers()
        return reader

    def unfollow(self, reader: RunReader) -> None:
        self._listeners.discard(reader)
        self._look_for_readers()
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

    def _look_for_readers(self) -> None:
        if self._abandonment is None:
            return
        if self._listeners or self.is_finished:
            self._abandonment.stop()
        else:
            self._abandonment.left()


class RunReader:
    """One reader's cursor into a run's log. Owned by the event loop's thread."""

    __slots__ = ("_cursor", "_has_caught_up", "_log", "run", "wake")

    def __init__(self, run: Run, log: RunLog, after_seq: int, wake: Callable[[], None]) -> None:
        self.run = run
        self.wake = wake
        self._log = log
        self._cursor = min(max(after_seq, 0), run.last_seq)
        self._has_caught_up = False

    @property
    def has_more(self) -> bool:
        return self._cursor < self._log.last_seq

    @property
    def is_done(self) -> bool:
        """The run has ended and its last event was taken."""
        return self._log.is_ended and not self.has_more

    def take(self, max_bytes: int | None = None) -> list[Event]:
        """What is new. With `max_bytes` about so much of it, but at least one event; and a reader
        that had caught up and now lags far behind gets a snapshot in place of many deltas."""
        log = self._log
        events = log.read(self._cursor)
        if max_bytes is not None and len(events) > 1:
            if self._has_caught_up:
                events = log.condensed(self._cursor)
            events = _first(events, max_bytes)
        if events:
            self._cursor = events[-1].seq
            self._has_caught_up = self._has_caught_up or not self.has_more
        return events

    def close(self) -> None:
        self.run.unfollow(self)


def _first(events: list[Event], max_bytes: int) -> list[Event]:
    size = 0
    for count, event in enumerate(events):
        if count and size + len(event.data) > max_bytes:
            return events[:count]
        size += len(event.data)
    return events
