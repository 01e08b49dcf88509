"""`RunLog`: the numbered events of one run, bounded, readable from any point by any number of
readers. It knows no tasks and no clock.

When the log is longer than its bound, the older half is folded: its deltas become one text, its
progress events go, and what remains (accepted, retrieval, context, start, …) is kept whole. A
reader that comes from before the fold gets the kept events it lacks, one `snapshot` in the place
of what is gone, and then every event after it. An ended log is folded whole (`fold_all`). A reader
that lags far behind gets the same as if all had been folded (`condensed`), where that is shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.service.event_encoder import EventEncoder
from server.service.events import TERMINAL, TRANSIENT, Event

_BYTES_PER_CHAR = 2
"""Of a text with characters beyond Latin-1, in memory."""
_FEW = 64
"""So many events are read one by one, however late."""


class RunLog:
    """Owned by the event loop's thread. `seq` runs from 1 without gaps."""

    def __init__(self, run_id: str, max_events: int) -> None:
        self._encoder = EventEncoder(run_id)
        self._max_events = max_events
        self._kept: list[Event] = []
        self._recent: list[Event] = []
        self._folded_text = ""
        self._folded_thinking = ""
        self._folded_through = 0
        self._text_through = 0
        self._snapshot: Event | None = None
        self.is_ended = False

    @property
    def last_seq(self) -> int:
        return self._folded_through + len(self._recent)

    @property
    def text(self) -> str:
        """What all deltas so far join to."""
        return self._folded_text + _joined(self._recent, "delta")

    @property
    def thinking(self) -> str:
        """What all thinking events so far join to."""
        return self._folded_thinking + _joined(self._recent, "thinking")

    @property
    def num_bytes(self) -> int:
        """About what the log takes in memory once it is folded: its text, and all other events
        that are kept."""
        events = (*self._kept, *self._recent)
        kept = sum(len(event.data) for event in events if event.type not in TRANSIENT)
        return kept + _BYTES_PER_CHAR * (len(self.text) + len(self.thinking))

    def append(self, type: str, fields: dict[str, Any]) -> Event:
        """Numbers, encodes and keeps an event. Raises RuntimeError after the terminal one."""
        if self.is_ended:
            raise RuntimeError(f"the run has ended; {type!r} cannot follow")
        event = self._encoder.event(type, self.last_seq + 1, fields)
        self._recent.append(event)
        if type in TERMINAL:
            self.is_ended = True
        else:
            self._bound()
        return event

    def append_delta(self, text: str) -> None:
        """`append("delta", {"text": text})`, for the hot path."""
        if self.is_ended:
            raise RuntimeError("the run has ended; a delta cannot follow")
        recent = self._recent
        recent.append(self._encoder.delta(self._folded_through + len(recent) + 1, text))
        if len(recent) > self._max_events:
            self._bound()

    def fold_all(self) -> None:
        """Folds everything but the last event, for a log that is only kept for a return."""
        if len(self._recent) > 1:
            self._fold(len(self._recent) - 1)

    def read(self, after_seq: int) -> list[Event]:
        """The events after `after_seq`, or what stands for them; empty when there are none."""
        first = after_seq - self._folded_through
        if first >= 0:
            return self._recent[first:]
        kept = [event for event in self._kept if event.seq > after_seq]
        if after_seq >= self._text_through:
            return kept + self._recent
        if self._snapshot is None:
            self._snapshot = self._encoder.snapshot(
                self._folded_text, self._folded_thinking, self._text_through
            )
        return [*_around(self._snapshot, kept), *self._recent]

    def condensed(self, after_seq: int) -> list[Event]:
        """As `read`; but a snapshot of all text so far stands for many waiting events that it is
        shorter than, so that what a slow reader is sent is bounded by the text."""
        events = self.read(after_seq)
        if len(events) <= _FEW:
            return events
        through = max((event.seq for event in events if event.type in TRANSIENT), default=0)
        if through == 0:
            return events
        snapshot = self._encoder.snapshot(self.text, self.thinking, through)
        kept = [event for event in events if event.type not in (*TRANSIENT, "snapshot")]
        condensed = _around(snapshot, kept)
        return min(condensed, events, key=_num_bytes)

    def _bound(self) -> None:
        if len(self._recent) > self._max_events:
            # Half at a time, so that joining the text costs a constant amount per event.
            self._fold(max(1, len(self._recent) // 2))

    def _fold(self, count: int) -> None:
        folded, self._recent = self._recent[:count], self._recent[count:]
        self._folded_through = folded[-1].seq
        for event in folded:
            if event.type in TRANSIENT:
                self._text_through = event.seq
                self._snapshot = None
            else:
                self._kept.append(event)
        self._folded_text += _joined(folded, "delta")
        self._folded_thinking += _joined(folded, "thinking")


def _joined(events: Sequence[Event], type: str) -> str:
    return "".join(event.text or "" for event in events if event.type == type)


def _around(snapshot: Event, kept: Sequence[Event]) -> list[Event]:
    """The snapshot in its place among the events that it does not stand for. It bears the number
    of the last one that it does, so numbers rise."""
    before = [event for event in kept if event.seq < snapshot.seq]
    return [*before, snapshot, *kept[len(before) :]]


def _num_bytes(events: Sequence[Event]) -> int:
    return sum(len(event.data) for event in events)
