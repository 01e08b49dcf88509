"""Sessions of people who have logged in. Their tokens are not here, only what these hash to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import delete, select, update

from server.store.database import Database
from server.store.schema import LoginSession, User


class LoginSessions:
    """Repository of login sessions. Rows that it returns are detached: read them, never change
    them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[tuple[LoginSession, User]]:
        """Every session of people who are not disabled."""
        query = (
            select(LoginSession, User)
            .join(User, User.id == LoginSession.user_id)
            .where(~User.is_disabled)
        )
        async with self._database.session() as session:
            return [(row[0], row[1]) for row in await session.execute(query)]

    async def add(self, id: str, user: User, *, created_at: datetime, expires_at: datetime) -> bool:
        """A new session of `user` as they were read when their password was compared; it was seen
        when it was made. False where they are gone by now, are disabled or have another
        password: whoever ended their sessions could not end this one."""
        async with self._database.transaction() as session:
            now = await session.get(User, user.id, with_for_update=True)
            if now is None or now.is_disabled or now.password_hash != user.password_hash:
                return False
            session.add(
                LoginSession(
                    id=id,
                    user_id=user.id,
                    created_at=created_at,
                    expires_at=expires_at,
                    seen_at=created_at,
                )
            )
            now.seen_at = created_at
        return True

    async def remove(self, ids: Collection[str]) -> None:
        """Ends these sessions; those that have ended already are no error."""
        if not ids:
            return
        async with self._database.transaction() as session:
            await session.execute(delete(LoginSession).where(LoginSession.id.in_(ids)))

    async def saw(self, seen: Mapping[str, datetime]) -> None:
        """Notes when sessions, by id, were last used."""
        if not seen:
            return
        async with self._database.transaction() as session:
            for id, at in seen.items():
                await session.execute(
                    update(LoginSession).where(LoginSession.id == id).values(seen_at=at)
                )
