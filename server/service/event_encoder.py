"""`EventEncoder`: a run's events as JSON, made once for all sockets and all SSE readers."""

from __future__ import annotations

from typing import Any

from server.service.events import EVENT_FIELDS, Event, to_json
from server.service.text_json import text_json


class EventEncoder:
    """Encodes the events of one run, each once: the same bytes go to every reader. The constant
    part of a delta is made once. Owned by the event loop's thread."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._delta_head = b'{"type":"delta","run":' + to_json(run_id) + b',"text":'

    def delta(self, seq: int, text: str) -> Event:
        data = b'%b%b,"seq":%d}' % (self._delta_head, text_json(text), seq)
        return Event(seq, "delta", data, text)

    def event(self, type: str, seq: int, fields: dict[str, Any]) -> Event:
        """Raises ValueError for a type that is not in the protocol, or a missing field."""
        if type == "delta":
            return self.delta(seq, fields["text"])
        missing = [name for name in EVENT_FIELDS.get(type, ("type",)) if name not in fields]
        if missing:
            raise ValueError(f"event {type!r} lacks {', '.join(missing)} or is not known")
        data = to_json({"type": type, "run": self._run_id, "seq": seq, **fields})
        return Event(seq, type, data, fields["text"] if type == "thinking" else None)

    def snapshot(self, text: str, thinking: str, through_seq: int) -> Event:
        """What all deltas up to `through_seq` join to, and all thinking, if there was any."""
        fields: dict[str, Any] = {"text": text, "through_seq": through_seq}
        if thinking:
            fields["thinking"] = thinking
        return self.event("snapshot", through_seq, fields)
