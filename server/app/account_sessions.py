"""`AccountSessions`: who is logged in, in memory, and written through to the store.

A token is 32 random bytes; only its SHA-256 is kept. A session ends when its person logs out,
changes their password, is disabled or deleted, after 30 days without use, and after 180 days.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import sqlite3
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.exc import SQLAlchemyError

from server.app.people import Person, person_from
from server.service.auth import TOKEN_PREFIX, Access, Caller, UserId
from server.service.errors import UnauthorizedError
from server.store.column_types import utc_now
from server.store.login_sessions import LoginSessions
from server.store.schema import User

log = logging.getLogger(__name__)

IDLE_DAYS = 30
MOST_DAYS = 180
COOKIE_S = MOST_DAYS * 24 * 3600
_KEEPING_S = 300.0
"""How often last uses are written down and old sessions dropped."""
_PATIENCE_S = 2.0
"""How long that may wait for the database."""

_TEACHERS_MAY = frozenset({Access.CHAT})


@dataclass(slots=True)
class _Session:
    user: UserId
    expires_at: datetime
    seen_at: datetime
    is_written: bool = True

    def is_over(self, now: datetime) -> bool:
        return now >= self.expires_at or now - self.seen_at > timedelta(days=IDLE_DAYS)


class AccountSessions:
    """A `SessionBook`. Owned by the event loop. One process writes a store's sessions: another
    one's log-outs would not be heard of."""

    def __init__(self, store: LoginSessions, clock: Callable[[], datetime] = utc_now) -> None:
        self._store = store
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        self._people: dict[UserId, Person] = {}
        self._ids: dict[UserId, set[str]] = {}
        self._on_end: Callable[[], None] = _nothing
        self._keeper: asyncio.Task[None] | None = None

    def on_end(self, callback: Callable[[], None]) -> None:
        """Calls `callback` each time after sessions have ended."""
        self._on_end = callback

    # What the service asks.

    def find(self, token: str) -> Caller | None:
        """Whose session it is; notes that it was used."""
        session = self._sessions.get(token_id(token))
        now = self._clock()
        if session is None or session.is_over(now):
            return None
        session.seen_at, session.is_written = now, False
        return self._caller(session.user)

    def caller(self, user: UserId) -> Caller | None:
        """The account as a caller while it has a session."""
        return self._caller(user) if self.person(user) is not None else None

    def person(self, user: UserId) -> Person | None:
        """Who an account is while it has a session."""
        now = self._clock()
        ids = self._ids.get(user, ())
        if all(self._sessions[id].is_over(now) for id in ids):
            return None
        return self._people[user]

    def _caller(self, user: UserId) -> Caller:
        is_teacher = self._people[user].is_teacher
        return Caller(user, _TEACHERS_MAY if is_teacher else frozenset())

    # Beginning and ending.

    async def start(self) -> None:
        """Reads what the store has, and begins to keep it."""
        for row, user in await self._store.all():
            self._enter(row.id, user, _Session(UserId(user.id), row.expires_at, row.seen_at))
        await self.keep()
        self._keeper = asyncio.get_running_loop().create_task(self._keep_on())

    async def stop(self) -> None:
        """Writes down what is not written yet. Idempotent."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
            await self._try_to_keep()

    async def begin(self, user: User) -> str:
        """A new session of `user` as they were read when they were asked who they are; returns its
        token, which is never seen again. Raises UnauthorizedError where they were disabled, or
        their password was changed, meanwhile."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        now = self._clock()
        session = _Session(UserId(user.id), now + timedelta(days=MOST_DAYS), now)
        id = token_id(token)
        # Before it is stored, so that what ends all sessions ends this one too.
        self._enter(id, user, session)
        is_added = False
        try:
            is_added = await self._store.add(
                id, user, created_at=now, expires_at=session.expires_at
            )
        finally:
            if not is_added:
                self._forget({id})
        if not is_added:
            raise UnauthorizedError(
                "This account was changed while you logged in; log in again.",
                message_zh="登录时此账号有变动，请重新登录。",
                reason="account_changed",
            )
        return token

    async def end(self, token: str) -> None:
        """Logs one browser out."""
        await self._end({token_id(token)})

    async def end_all(self, user: UserId, *, but: str | None = None) -> None:
        """Ends all sessions of a user, `but` the one with this token."""
        kept = None if but is None else token_id(but)
        await self._end({id for id in self._ids.get(user, ()) if id != kept})

    def changed(self, user: User) -> None:
        """Takes over a new name, login or role."""
        if user.id in self._people:
            self._people[UserId(user.id)] = person_from(user)

    async def keep(self) -> None:
        """Drops sessions that are over and writes down when the others were used."""
        now = self._clock()
        await self._end({id for id, one in self._sessions.items() if one.is_over(now)})
        unwritten = {id: one.seen_at for id, one in self._sessions.items() if not one.is_written}
        await self._store.saw(unwritten)
        for id, seen_at in unwritten.items():
            session = self._sessions.get(id)
            if session is not None and session.seen_at == seen_at:
                session.is_written = True

    async def _keep_on(self) -> None:
        while True:
            await asyncio.sleep(_KEEPING_S)
            await self._try_to_keep()

    async def _try_to_keep(self) -> None:
        """What is not written this time is written the next; at the end, a database that is locked
        costs some last uses, and holds nobody up."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self.keep()
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:  # TimeoutError is an OSError
            log.warning("last uses of sessions were not written down: %r", error)

    async def _end(self, ids: set[str]) -> None:
        # From memory first: whatever the store says, the right has ended.
        self._forget(ids)
        if ids:
            self._on_end()
        await self._store.remove(ids)

    def _forget(self, ids: Collection[str]) -> None:
        for id in ids:
            session = self._sessions.pop(id, None)
            if session is None:
                continue
            left = self._ids[session.user]
            left.discard(id)
            if not left:
                del self._ids[session.user], self._people[session.user]

    def _enter(self, id: str, user: User, session: _Session) -> None:
        self._sessions[id] = session
        self._ids.setdefault(session.user, set()).add(id)
        self._people[session.user] = person_from(user)


def token_id(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def _nothing() -> None:
    pass
