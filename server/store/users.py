"""People with accounts, and the one-time links that set these up. Guests' rows are made with their
first question (`Messages`)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from server.store.database import Database
from server.store.enrolments import adopt_courses
from server.store.ids import new_id
from server.store.schema import OneTimeLink, User


class LoginTakenError(Exception):
    """Somebody else has this login."""


class LinkUsedError(Exception):
    """The one-time link was used already, is too old, or never was."""


@dataclass(frozen=True, slots=True)
class NewAccount:
    """An account to be made. `login` is folded already."""

    name: str
    login: str
    password_hash: str
    role: str


class Users:
    """Repository of accounts and links. Rows that it returns are detached: read them, never change
    them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, user_id: str) -> User | None:
        """The user with this id, guests too."""
        async with self._database.session() as session:
            return await session.get(User, user_id)

    async def with_login(self, login: str) -> User | None:
        """The account with this (folded) login."""
        async with self._database.session() as session:
            return await session.scalar(select(User).where(User.login == login))

    async def has_teacher(self) -> bool:
        """Whether any teacher has an account."""
        query = select(func.count()).where(User.role == "teacher", User.login.is_not(None))
        async with self._database.session() as session:
            return bool(await session.scalar(query))

    async def add(
        self, account: NewAccount, *, link: str | None, at: datetime, adopts: bool = False
    ) -> User:
        """Makes an account, using up the link with this id if one is named; with `adopts`, the
        teacher of every course that has none. All of it or nothing. Raises LoginTakenError and
        LinkUsedError."""
        user = User(
            id=new_id(),
            role=account.role,
            name=account.name,
            login=account.login,
            password_hash=account.password_hash,
            created_at=at,
        )
        async with self._database.transaction() as session:
            if link is not None:
                await _use(session, link, at)
            session.add(user)
            try:
                await session.flush()
            except IntegrityError as error:
                raise LoginTakenError(account.login) from error
            if adopts:
                await adopt_courses(session, user.id)
        return user

    async def set_password(
        self, user_id: str, password_hash: str, *, link: str | None = None, at: datetime
    ) -> None:
        """A new password, using up the link with this id if one is named; every other link of this
        user then opens nothing any more. Raises LinkUsedError."""
        async with self._database.transaction() as session:
            if link is not None:
                await _use(session, link, at)
            await session.execute(
                update(User).where(User.id == user_id).values(password_hash=password_hash)
            )
            await session.execute(
                delete(OneTimeLink).where(
                    OneTimeLink.user_id == user_id, OneTimeLink.used_at.is_(None)
                )
            )

    async def rehash(self, user_id: str, old_hash: str, new_hash: str) -> None:
        """The same password, hashed anew; nothing where it is another one by now."""
        async with self._database.transaction() as session:
            await session.execute(
                update(User)
                .where(User.id == user_id, User.password_hash == old_hash)
                .values(password_hash=new_hash)
            )

    async def rename(self, user_id: str, name: str) -> None:
        """Gives an account another name."""
        async with self._database.transaction() as session:
            await session.execute(update(User).where(User.id == user_id).values(name=name))

    async def set_disabled(self, user_id: str, is_disabled: bool) -> None:
        """Shuts an account out, or lets it in again."""
        async with self._database.transaction() as session:
            await session.execute(
                update(User).where(User.id == user_id).values(is_disabled=is_disabled)
            )

    # One-time links.

    async def add_link(self, link: OneTimeLink) -> None:
        """A new link. Links that nobody used in time go; so do unused ones that it replaces: of
        the same user, or to the first teacher's account."""
        async with self._database.transaction() as session:
            unused = OneTimeLink.used_at.is_(None)
            is_old = OneTimeLink.expires_at <= link.created_at
            is_replaced = (
                OneTimeLink.purpose == link.purpose
                if link.purpose == "first_teacher"
                else (OneTimeLink.user_id == link.user_id) & OneTimeLink.user_id.is_not(None)
            )
            await session.execute(delete(OneTimeLink).where(unused, is_old | is_replaced))
            session.add(link)

    async def find_link(self, link_id: str, at: datetime) -> tuple[OneTimeLink, User | None] | None:
        """A link that can still be used, with whom it is for."""
        query = (
            select(OneTimeLink, User)
            .outerjoin(User, User.id == OneTimeLink.user_id)
            .where(
                OneTimeLink.id == link_id,
                OneTimeLink.used_at.is_(None),
                OneTimeLink.expires_at > at,
            )
        )
        async with self._database.session() as session:
            row = (await session.execute(query)).first()
        return None if row is None else (row[0], row[1])


async def _use(session: AsyncSession, link_id: str, at: datetime) -> None:
    used = await session.scalar(
        update(OneTimeLink)
        .where(
            OneTimeLink.id == link_id,
            OneTimeLink.used_at.is_(None),
            OneTimeLink.expires_at > at,
        )
        .values(used_at=at)
        .returning(OneTimeLink.id)
    )
    if used is None:
        raise LinkUsedError
