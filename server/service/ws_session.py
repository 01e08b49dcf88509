"""One WebSocket connection: a reader that dispatches messages, and one writer that follows runs.

Nothing is queued per run: the writer holds a cursor into each log it follows. What the application
must do for a message is done beside the reading, which goes on. A disconnect ends the session and
no run, and what was received before it still happens.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, assert_never

from server.service.auth import UserId
from server.service.conversation import ConversationApp
from server.service.errors import (
    BadRequestError,
    NotFoundError,
    RateLimitedError,
    ResumeGoneError,
    ServiceError,
    UnauthorizedError,
    from_unknown,
)
from server.service.events import to_json
from server.service.http import Receive, Send, abort_connection
from server.service.lane import Lane
from server.service.messages import (
    Ask,
    Attach,
    Cancel,
    Chat,
    ClientMessage,
    Continue,
    Edit,
    Feedback,
    Hello,
    Ping,
    Regenerate,
    decode,
    envelope,
)
from server.service.runs import Run, RunReader
from server.service.ws_context import SocketContext

log = logging.getLogger(__name__)

CLOSE_GOING_AWAY = 1001
CLOSE_POLICY = 1008
CLOSE_OVERLOAD = 1013

_AFTERWARDS_S = 60.0
"""How long the application may still work on what was received before the client left."""


class WebSocketSession:
    """Owned by the event loop's thread. `user` None: not known yet, `hello` must tell."""

    def __init__(
        self, context: SocketContext, receive: Receive, send: Send, user: UserId | None
    ) -> None:
        self._context = context
        self._limits = context.limits
        self._receive = receive
        self._send = send
        self._user = user
        # What `welcome` calls the session: the value with which a program can come back, or, for
        # a page, whose cookie stays hidden from its scripts, a mere name.
        self._session = secrets.token_urlsafe(12)
        self._following: dict[str, RunReader] = {}
        self._ready: dict[str, None] = {}
        self._outbox: deque[str] = deque()
        self._closing: tuple[int, str] | None = None
        self._woken = asyncio.Event()
        # Opening a run only reads, which never waits for a writer; feedback writes.
        self._openings = Lane(context.limits.max_waiting_messages, self._woken.set)
        self._feedback = Lane(context.limits.max_waiting_messages, self._woken.set)
        self._sending_since: float | None = None

    async def serve(self) -> None:
        """Runs until the client leaves or the session is closed. Always leaves no task."""
        loop = asyncio.get_running_loop()
        reading = loop.create_task(self._read())
        writing = loop.create_task(self._write())
        watching = loop.create_task(self._watch())
        tasks = (reading, writing, watching)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                abort_connection(self._send)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self._unfollow_all()
            try:
                await asyncio.gather(
                    self._openings.finish(_AFTERWARDS_S), self._feedback.finish(_AFTERWARDS_S)
                )
            finally:
                self._unfollow_all()
        for error in results:
            # Sending to a client that has just left is how most sessions end.
            if isinstance(error, Exception) and not isinstance(error, OSError):
                log.debug("a WebSocket session ended by %r", error)

    def close(self, code: int, reason: str) -> None:
        """Sends what is ready, then closes. The first call counts."""
        if self._closing is None:
            self._closing = (code, reason)
            self._woken.set()

    async def _read(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if self._closing is not None:
                continue
            if text is None:
                self._tell_error(BadRequestError("Frames must be text, not binary."), {})
            else:
                self._take(text)

    def _take(self, text: str) -> None:
        with self._telling(lambda: envelope(text)):
            self._dispatch(decode(text))

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
                self._check_room()
                self._follow(self._context.chat(user, message))
            case Ask():
                self._open(message.id, partial(self._app.ask, user, message))
            case Continue():
                self._open(message.id, partial(self._app.continue_, user, message))
            case Regenerate():
                self._open(message.id, partial(self._app.regenerate, user, message))
            case Edit():
                self._open(message.id, partial(self._app.edit, user, message))
            case Feedback():
                self._judge(message.id, partial(self._app.feedback, user, message))
            case _:
                assert_never(message)

    def _open(self, message_id: str, open_run: Callable[[], Awaitable[Run]]) -> None:
        async def job() -> None:
            with self._telling(lambda: {"id": message_id}):
                self._check_room()
                self._follow(await open_run())

        self._openings.put(job)

    def _judge(self, message_id: str, judge: Callable[[], Awaitable[None]]) -> None:
        async def job() -> None:
            with self._telling(lambda: {"id": message_id}):
                await judge()

        self._feedback.put(job)

    def _hello(self, message: Hello) -> None:
        if len(message.resume) > (limit := self._limits.max_resumes):
            raise BadRequestError(f"resume may name at most {limit} runs", param="resume")
        auth = self._context.auth
        if message.token is not None:
            self._user = auth.user_from_session(message.token) or auth.user_from_key(message.token)
            self._session = message.token
        else:
            self._start_if_open()
        if self._user is None:
            self._tell_error(UnauthorizedError("The token is missing or not known."), {})
            self.close(CLOSE_POLICY, "unauthorized")
            return
        self._tell(self._welcome(self._user))
        for resume in message.resume:
            try:
                self._attach(self._user, resume.run, resume.after_seq)
            except ServiceError as error:
                self._tell_error(error, {"run": resume.run})

    def _start_if_open(self) -> None:
        """In open mode somebody unknown gets a session, to come back to the same runs."""
        if self._user is None and self._context.auth.is_open:
            self._user, self._session = self._context.auth.new_session()

    def _welcome(self, user: UserId) -> dict[str, Any]:
        model = self._context.generation.model
        return {
            "type": "welcome",
            "session": self._session,
            "model": {
                "name": model.name,
                "is_fallback": model.is_fallback,
                "max_model_len": model.max_model_len,
                "window": model.window,
            },
            "limits": {
                "max_message_bytes": self._limits.max_message_bytes,
                "max_tokens": model.window,
                "max_runs_per_connection": self._limits.max_runs_per_connection,
                "max_runs_per_user": self._limits.max_runs_per_user,
                "max_resumes": self._limits.max_resumes,
            },
            "active_runs": [
                {
                    "run": run.id,
                    "conversation": run.conversation,
                    "message": run.message,
                    "last_seq": run.last_seq,
                }
                for run in self._context.runs.active(user)
            ],
        }

    def _known_user(self) -> UserId:
        self._start_if_open()
        if self._user is None:
            raise UnauthorizedError("Say hello with a token first.")
        return self._user

    @property
    def _app(self) -> ConversationApp:
        if self._context.app is None:
            raise NotFoundError("This server has no courses.")
        return self._context.app

    def _check_room(self) -> None:
        limit = self._limits.max_runs_per_connection
        if len(self._following) >= limit:
            raise RateLimitedError(f"This connection follows {limit} running answers already.")

    def _own_run(self, user: UserId, run_id: str, missing: type[ServiceError]) -> Run:
        # Another user's run is told as missing, so that ids cannot be probed.
        run = self._context.runs.get(run_id)
        if run is None or run.owner != user:
            raise missing("This run is not known (any more).")
        return run

    def _attach(self, user: UserId, run_id: str, after_seq: int) -> None:
        run = self._own_run(user, run_id, ResumeGoneError)
        if run_id not in self._following:
            self._check_room()
        self._unfollow(run_id)
        self._follow(run, after_seq)

    def _follow(self, run: Run, after_seq: int = 0) -> None:
        # A repeated message gives the same run: what was sent is not sent again.
        if run.id not in self._following:
            self._following[run.id] = run.follow(after_seq, partial(self._mark, run.id))
            self._mark(run.id)

    def _unfollow(self, run_id: str) -> None:
        reader = self._following.pop(run_id, None)
        if reader is not None:
            reader.close()

    def _unfollow_all(self) -> None:
        for run_id in list(self._following):
            self._unfollow(run_id)

    def _mark(self, run_id: str) -> None:
        self._ready[run_id] = None
        self._woken.set()

    def _tell(self, message: dict[str, Any]) -> None:
        if len(self._outbox) >= self._limits.max_outbox_messages:
            self._outbox.clear()
            self.close(CLOSE_OVERLOAD, "replies are not read")
            return
        self._outbox.append(to_json(message).decode())
        self._woken.set()

    def _tell_error(self, error: ServiceError, named: dict[str, str]) -> None:
        self._tell({"type": "error", **named, **error.event_fields()})

    async def _write(self) -> None:
        while True:
            self._woken.clear()
            while self._outbox:
                await self._send_text(self._outbox.popleft())
            ready, self._ready = self._ready, {}
            for run_id in ready:
                await self._send_events(run_id)
            if self._outbox or self._ready:
                continue
            # A question that is being taken still hears whether it was.
            if self._closing is not None and not self._openings.is_busy:
                code, reason = self._closing
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
                return
            await self._woken.wait()

    async def _send_events(self, run_id: str) -> None:
        reader = self._following.get(run_id)
        if reader is None:
            return
        for event in reader.take():
            # An attach while a frame was sent has put another cursor in this one's place.
            if self._following.get(run_id) is not reader:
                return
            await self._send_text(event.data.decode())
        if reader.is_done and self._following.get(run_id) is reader:
            self._unfollow(run_id)

    async def _send_text(self, text: str) -> None:
        self._sending_since = asyncio.get_running_loop().time()
        await self._send({"type": "websocket.send", "text": text})
        self._sending_since = None

    async def _watch(self) -> None:
        """Returns when the client takes nothing for `send_timeout_s`; closes a session that
        has not said who it is in time."""
        loop = asyncio.get_running_loop()
        hello_by = loop.time() + self._limits.hello_timeout_s
        tick_s = min(self._limits.send_timeout_s, self._limits.hello_timeout_s) / 4
        while True:
            await asyncio.sleep(tick_s)
            now = loop.time()
            if self._user is None and not self._context.auth.is_open and now > hello_by:
                self.close(CLOSE_POLICY, "no hello")
            since = self._sending_since
            if since is not None and now - since > self._limits.send_timeout_s:
                return
