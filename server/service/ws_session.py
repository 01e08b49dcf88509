"""One WebSocket connection: it reads messages and does what they say; `SocketWriter` answers.

What the application must do for a message is done beside the reading, which goes on. A disconnect
ends the session and no run that is to be kept, and what was received before it still happens.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, assert_never

from server.service import request_terms
from server.service.auth import Access, Caller, UserId, is_token
from server.service.conversation import ConversationApp
from server.service.counts import Counts
from server.service.errors import (
    BadRequestError,
    ForbiddenError,
    NotFoundError,
    RateLimitedError,
    ResumeGoneError,
    ServiceError,
    UnauthorizedError,
    from_unknown,
)
from server.service.events import to_json
from server.service.http import Receive, Send, SlowClientError
from server.service.lane import Lane
from server.service.message_rate import MessageRate
from server.service.messages import (
    Ask,
    Attach,
    Cancel,
    Carry,
    Chat,
    ClientMessage,
    Continue,
    Count,
    Edit,
    Feedback,
    Hello,
    OnDisconnect,
    Ping,
    Regenerate,
    Undo,
    decode,
    envelope,
)
from server.service.options import GenerationOptions
from server.service.run import Run
from server.service.welcome import welcome
from server.service.ws_context import SocketContext
from server.service.ws_writer import CLOSE_OVERLOAD, TOO_MANY_CONNECTIONS, SocketWriter

log = logging.getLogger(__name__)

CLOSE_GOING_AWAY = 1001
CLOSE_POLICY = 1008

_AFTERWARDS_S = 60.0
"""How long the application may still work on what was received before the client left."""


class WebSocketSession:
    """Owned by the event loop's thread. `credential`: the session value that it came with; without
    one that is valid, `hello` must tell who it is."""

    def __init__(
        self, context: SocketContext, receive: Receive, send: Send, credential: str | None
    ) -> None:
        self._context = context
        self._limits = context.limits
        self._receive = receive
        self._credential = credential
        self._user: UserId | None = None
        # What `welcome` calls the session: the value with which a program can come back, or, for
        # a page, whose cookie stays hidden from its scripts, a mere name.
        self._session = secrets.token_urlsafe(12)
        loop = asyncio.get_running_loop()
        self._rate = MessageRate(context.limits.max_messages_per_s, loop.time())
        self._writer = SocketWriter(send, context.fan_out, context.limits, self._is_opening)
        # Opening a run only reads, which never waits for a writer; feedback and undo write.
        self._openings = Lane(context.limits.max_waiting_messages, self._writer.wake)
        self._writing = Lane(context.limits.max_waiting_messages, self._writer.wake)
        self._counts = Counts(self._writer.wake)

    @property
    def user(self) -> UserId | None:
        """Whose session it is; None: not known yet."""
        return self._user

    @property
    def is_valid(self) -> bool:
        """False: its user was known, and may be served no more."""
        user = self._user
        return user is None or self._context.auth.is_valid(user, self._credential)

    async def serve(self) -> None:
        """Runs until the client leaves or the session is closed. Always leaves no task."""
        loop = asyncio.get_running_loop()
        user = self._context.auth.user_from_session(self._credential or "")
        if user is not None:
            with self._telling(dict):
                self._identify(user)
        elif self._credential is not None and is_token(self._credential):
            # Somebody whose session has ended: not a stranger, who would get one of their own.
            self.close(CLOSE_POLICY, "unauthorized")
        hello_by = loop.call_later(self._limits.hello_timeout_s, self._miss_hello)
        tasks = (loop.create_task(self._read()), loop.create_task(self._write()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hello_by.cancel()
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self._writer.unfollow_all()
            if self._user is not None:
                self._context.user_sessions.leave(self._user, self)
            try:
                await asyncio.gather(
                    self._openings.finish(_AFTERWARDS_S),
                    self._writing.finish(_AFTERWARDS_S),
                    self._counts.stop(),
                )
            finally:
                self._writer.unfollow_all()
                if self._user is not None:
                    self._context.connections.leave(self._user)
        for error in results:
            # Sending to a client that has just left is how most sessions end.
            if isinstance(error, Exception) and not isinstance(error, OSError):
                log.debug("a WebSocket session ended by %r", error)

    def hear(self, message: bytes) -> None:
        """Sends a message that belongs to no run; nothing to one that may be served no more."""
        if not self._writer.is_closing and self.is_valid:
            self._writer.tell(message)

    def follows(self, run_id: str) -> bool:
        """Whether it gets the events of this run."""
        return self._writer.follows(run_id)

    def close(self, code: int, reason: str) -> None:
        """Sends what is ready, then closes. The first call counts."""
        self._writer.close(code, reason)

    async def _write(self) -> None:
        try:
            await self._writer.serve()
        except SlowClientError:
            self._writer.abort()

    def _is_opening(self) -> bool:
        return self._openings.is_busy

    def _miss_hello(self) -> None:
        if self._user is None and not self._context.auth.takes_strangers:
            self.close(CLOSE_POLICY, "no hello")

    async def _read(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            if not self._writer.is_closing:
                self._take(message.get("text"))

    def _take(self, text: str | None) -> None:
        with self._telling(lambda: envelope(text or "")):
            self._check_rate()
            if text is None:
                raise BadRequestError("Frames must be text, not binary.")
            self._dispatch(decode(text))

    def _check_rate(self) -> None:
        retry_after_ms = self._rate.take(asyncio.get_running_loop().time())
        if retry_after_ms is None:
            return
        if self._rate.is_flooded:
            self.close(CLOSE_POLICY, "too many messages")
        raise RateLimitedError(
            f"A connection may send {self._limits.max_messages_per_s:g} messages a second.",
            retry_after_ms=retry_after_ms,
        )

    @contextmanager
    def _telling(self, named: Callable[[], dict[str, str]]) -> Iterator[None]:
        """What raises inside the block is told as an error about what `named` names."""
        try:
            yield
        except ServiceError as error:
            self._tell_error(error, named())
        except Exception as error:
            log.exception("a WebSocket message failed")
            self._tell_error(from_unknown(error), named())

    def _dispatch(self, message: ClientMessage) -> None:
        if isinstance(message, Hello):
            self._hello(message)
            return
        user = self._known_user()
        match message:
            case Ping():
                self._tell({"type": "pong", **({"id": message.id} if message.id else {})})
            case Cancel():
                self._own_run(user, message.run, NotFoundError).cancel()
            case Attach():
                self._attach(user, message.run, message.after_seq)
            case Chat():
                self._check_access(user)
                self._check_terms(user, message.options)
                self._check_room()
                self._begin(self._context.chat(user, message), message.on_disconnect)
            case Ask():
                self._open(user, message, partial(self._app.ask, user, message))
            case Continue():
                self._open(user, message, partial(self._app.continue_, user, message))
            case Regenerate():
                self._open(user, message, partial(self._app.regenerate, user, message))
            case Edit():
                self._open(user, message, partial(self._app.edit, user, message))
            case Carry():
                self._open(user, message, partial(self._app.carry, user, message))
            case Feedback():
                self._write_for(message.id, partial(self._app.feedback, user, message))
            case Undo():
                self._write_for(message.id, partial(self._app.undo, user, message))
            case Count():
                self._count(message.id, partial(self._app.count, user, message))
            case _:
                assert_never(message)

    def _check_access(self, user: UserId) -> None:
        """Raises ForbiddenError for a user who may ask within a course only."""
        if Access.CHAT not in self._context.auth.access_of(user):
            raise ForbiddenError("This session may ask within a course only.")

    def _check_terms(self, user: UserId, options: GenerationOptions) -> None:
        """Raises BadRequestError before anything is stored for the message."""
        request_terms.terms(
            caller=Caller(user),
            limits=self._limits,
            arrived_s=0.0,
            timeout=options.timeout,
            priority=options.priority,
            param_prefix="options.",
        )

    def _open(
        self,
        user: UserId,
        message: Ask | Continue | Regenerate | Edit | Carry,
        open_run: Callable[[], Awaitable[Run]],
    ) -> None:
        self._check_terms(user, message.options)

        async def job() -> None:
            with self._telling(lambda: {"id": message.id}):
                self._check_room()
                self._begin(await open_run(), message.on_disconnect)

        self._openings.put(job)

    def _write_for(
        self, message_id: str, write: Callable[[], Awaitable[dict[str, Any] | None]]
    ) -> None:
        """Acknowledges a message when what it asks for is stored."""

        async def job() -> None:
            with self._telling(lambda: {"id": message_id}):
                self._tell({"type": "done", "id": message_id, **(await write() or {})})

        self._writing.put(job)

    def _count(self, message_id: str, count: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        async def job() -> None:
            with self._telling(lambda: {"id": message_id}):
                self._tell({"type": "counted", "id": message_id, **await count()})

        def replaced() -> None:
            error = RateLimitedError("A newer text is counted in place of this one.")
            self._tell_error(error, {"id": message_id})

        self._counts.put(job, replaced)

    def _hello(self, message: Hello) -> None:
        if len(message.resume) > (limit := self._limits.max_resumes):
            raise BadRequestError(f"resume may name at most {limit} runs", param="resume")
        auth = self._context.auth
        if message.token is not None:
            user = auth.user_from_session(message.token) or auth.user_from_key(message.token)
            if user is None:
                self._refuse(UnauthorizedError("The token is not known."))
                return
            self._session = self._credential = message.token
            self._identify(user)
        try:
            user = self._known_user()
        except UnauthorizedError as error:
            self._refuse(error)
            return
        self._tell(welcome(self._context, user, self._session))
        for resume in message.resume:
            try:
                self._attach(user, resume.run, resume.after_seq)
            except ServiceError as error:
                self._tell_error(error, {"run": resume.run})

    def _refuse(self, error: UnauthorizedError) -> None:
        self._tell_error(error, {})
        self.close(CLOSE_POLICY, "unauthorized")

    def _identify(self, user: UserId) -> None:
        """From now on the session is this user's. Raises RateLimitedError, and closes, when the
        user has too many of them."""
        if user == self._user:
            return
        connections = self._context.connections
        try:
            connections.enter(user)
        except RateLimitedError:
            self.close(CLOSE_OVERLOAD, TOO_MANY_CONNECTIONS)
            raise
        sessions = self._context.user_sessions
        if self._user is not None:
            sessions.leave(self._user, self)
            connections.leave(self._user)
        self._user = user
        sessions.enter(user, self)

    def _known_user(self) -> UserId:
        """Raises UnauthorizedError. Where strangers are welcome, one gets a session, to come back
        to the same runs."""
        auth = self._context.auth
        if self._user is None and auth.takes_strangers:
            user, self._session = auth.new_session()
            self._identify(user)
        if self._user is None:
            raise UnauthorizedError("Say hello with a token first.")
        if not self.is_valid:
            self.close(CLOSE_POLICY, "unauthorized")
            raise UnauthorizedError("This session or its key is valid no more.")
        return self._user

    @property
    def _app(self) -> ConversationApp:
        if self._context.app is None:
            raise NotFoundError("This server has no courses.")
        return self._context.app

    def _check_room(self) -> None:
        limit = self._limits.max_runs_per_connection
        if self._writer.num_following >= limit:
            raise RateLimitedError(f"This connection follows {limit} running answers already.")

    def _own_run(self, user: UserId, run_id: str, missing: type[ServiceError]) -> Run:
        # Another user's run is told as missing, so that ids cannot be probed.
        run = self._context.runs.get(run_id)
        if run is None or run.owner != user:
            raise missing("This run is not known (any more).")
        return run

    def _attach(self, user: UserId, run_id: str, after_seq: int) -> None:
        run = self._own_run(user, run_id, ResumeGoneError)
        if not self._writer.follows(run_id):
            self._check_room()
        self._writer.follow(run, after_seq)

    def _begin(self, run: Run, on_disconnect: OnDisconnect) -> None:
        """Follows a run that a message has opened."""
        # A repeated message gives the same run: what was sent is not sent again.
        if not self._writer.follows(run.id):
            self._writer.follow(run, 0)
        run.abandon_after(self._limits.abandon_grace_s if on_disconnect == "abandon" else None)

    def _tell(self, message: dict[str, Any]) -> None:
        self._writer.tell(to_json(message))

    def _tell_error(self, error: ServiceError, named: dict[str, str]) -> None:
        self._context.on_refused(error.code)
        self._tell({"type": "error", **named, **error.event_fields()})
