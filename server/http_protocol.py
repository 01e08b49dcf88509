"""uvicorn's HTTP protocol, in which every request of a connection hears that its client has left.

A client may send the next request before the first was answered. uvicorn tells only the last one
that it has read of the connection's end: those before it would go on to theirs, with nobody there.
And while one waits it reads nothing, so that it does not see the end either.
"""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MAX_READ_AHEAD = 8
"""Requests of one connection that are read before the first was answered. Behind them the client
waits, and its leaving is seen late."""


class HttpProtocol(HttpToolsProtocol):
    """For `uvicorn.Config(http=…)`. Owned by the event loop's thread."""

    _unanswered: tuple[RequestResponseCycle, ...] = ()

    def on_headers_complete(self) -> None:
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is before:  # the connection becomes a WebSocket
            return
        unanswered = [one for one in self._unanswered if not one.response_complete]
        self._unanswered = (*unanswered, self.cycle)
        if len(self._unanswered) <= MAX_READ_AHEAD:
            self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        unanswered, self._unanswered = self._unanswered, ()
        for cycle in unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
