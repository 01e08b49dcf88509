"""`Exchange`: one HTTP request and its reply, from the first byte to the log line."""

from __future__ import annotations

import time
from collections.abc import Sequence

from engine.api import Finish, FinishReason, Usage
from server.service.auth import Caller
from server.service.errors import ServiceError, UnauthorizedError
from server.service.fan_out import FanOut
from server.service.http import (
    Headers,
    Receive,
    Scope,
    Send,
    request_id,
    send_error,
    send_reply,
)
from server.service.usage import total_usage

CLIENT_LEFT = 499
"""The status of a request that got no reply because its client had left, as proxies write it."""


class Exchange:
    """What a route gets. Owned by the task that answers.

    A route replies once, by `reply`, by `fail` or by a stream of its own over `send`; what it
    raises instead becomes the reply (`routes`). The fields below `arrived_s` are for the log and
    the metrics: whoever learns one writes it down."""

    __slots__ = (
        "_caller",
        "arrived_s",
        "detail",
        "ended_s",
        "fan_out",
        "finishes",
        "headers",
        "id",
        "receive",
        "route",
        "scope",
        "send",
        "status",
        "usage",
    )

    def __init__(
        self, route: str, scope: Scope, receive: Receive, send: Send, fan_out: FanOut
    ) -> None:
        self.route = route
        """The route's pattern, `/v1/models/{id}`: a label of few values."""
        self.scope = scope
        self.receive = receive
        self.send = send
        self.fan_out = fan_out
        """For a reply that is streamed."""
        self.id = request_id(scope)
        """A label of the client's or ours; two requests may bear the same."""
        self.headers: Headers = [(b"x-request-id", self.id)]
        """Of every kind of reply; a route may add to them."""
        self._caller: Caller | None = None
        self.arrived_s = time.monotonic()
        self.status: int | None = None
        """None: nothing was replied, the client had gone."""
        self.detail: str | None = None
        """How a generation ended, or the code of an error."""
        self.usage: Usage | None = None
        self.finishes: Sequence[Finish] = ()
        self.ended_s: float | None = None
        """When the last of them had ended, of `time.monotonic()`."""

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        return str(self.scope["path"])

    @property
    def caller(self) -> Caller:
        """Who asks. Raises UnauthorizedError where nobody has been recognised."""
        if self._caller is None:
            raise UnauthorizedError("A valid API key is required.")
        return self._caller

    @caller.setter
    def caller(self, caller: Caller | None) -> None:
        self._caller = caller

    @property
    def known_caller(self) -> Caller | None:
        """Who asks, as far as it is known."""
        return self._caller

    def tell_ignored(self, fields: Sequence[str]) -> None:
        """Names fields of the body that nobody reads in the reply's headers."""
        if fields:
            self.headers.append((b"x-lectern-ignored", ", ".join(fields).encode()))

    async def reply(
        self, body: bytes, *, status: int = 200, content_type: bytes = b"application/json"
    ) -> None:
        """A whole reply."""
        self.status = status
        await send_reply(
            self.send, body, status=status, content_type=content_type, headers=self.headers
        )

    async def fail(self, error: ServiceError) -> None:
        """The error as OpenAI's JSON."""
        self.status = error.http_status
        self.detail = error.code
        await send_error(self.send, error, self.headers)

    def ended(self, finishes: Sequence[Finish], num_choices: int = 1) -> None:
        """Writes down how the request's generations ended: the first that did not end by itself,
        and what they took. They stand prompt by prompt, `num_choices` to each."""
        details = [finish.detail.type for finish in finishes]
        told = next((one for one in details if one.reason is not FinishReason.STOP), details[0])
        self.detail = told.value
        self.usage = total_usage([finish.usage for finish in finishes], num_choices)
        self.finishes = finishes
        self.ended_s = time.monotonic()
