"""A reader of event streams, by the HTML standard's rules for interpreting one
(https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """What a page would get: `type` is "message" where the stream names none."""

    type: str
    data: str
    last_event_id: str


@dataclass(slots=True)
class EventSourceReader:
    """Bytes in, in pieces of any size; events out. `last_event_id` is what a reconnection sends;
    `retry_ms` None: the stream said nothing of it; `comments` are what the standard ignores."""

    last_event_id: str = ""
    retry_ms: int | None = None
    comments: list[str] = field(default_factory=list)
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    _is_begun: bool = False
    _after_return: bool = False
    _line: str = ""
    _type: str = ""
    _data: str = ""
    _id: str = ""

    def feed(self, data: bytes) -> list[StreamEvent]:
        """The events that `data` completes."""
        events: list[StreamEvent] = []
        for char in self._decoder.decode(data):
            if not self._is_begun:
                self._is_begun = True
                self._id = self.last_event_id
                if char == "\ufeff":
                    continue
            if char == "\n" and self._after_return:
                self._after_return = False
                continue
            self._after_return = char == "\r"
            if char not in "\r\n":
                self._line += char
                continue
            line, self._line = self._line, ""
            if line:
                self._process(line)
            elif (event := self._dispatch()) is not None:
                events.append(event)
        return events

    def _process(self, line: str) -> None:
        name, colon, value = line.partition(":")
        if colon and not name:
            self.comments.append(value)
            return
        value = value.removeprefix(" ")
        if name == "event":
            self._type = value
        elif name == "data":
            self._data += value + "\n"
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value)

    def _dispatch(self) -> StreamEvent | None:
        self.last_event_id = self._id
        data, self._data = self._data, ""
        kind, self._type = self._type, ""
        if not data:
            return None
        return StreamEvent(kind or "message", data.removesuffix("\n"), self.last_event_id)
