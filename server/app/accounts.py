"""`Accounts`: made, entered, changed, shut."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from server.app.account_sessions import AccountSessions
from server.app.links import gone
from server.app.passwords import MAX_CHARS, Passwords, check_password
from server.app.people import Person, person_from
from server.app.throttle import Throttle
from server.service.auth import UserId
from server.service.errors import (
    BadRequestError,
    ConflictError,
    RateLimitedError,
    UnauthorizedError,
)
from server.store.column_types import utc_now
from server.store.schema import OneTimeLink, User
from server.store.users import LinkUsedError, LoginTakenError, NewAccount, Users

MAX_NAME_CHARS = 100
MIN_LOGIN_CHARS, MAX_LOGIN_CHARS = 2, 100
FAILURES_PER_NAME, FAILURES_PER_ADDRESS = 5, 20
"""Failed log-ins a minute, after which the next ones wait."""


@dataclass(frozen=True, slots=True)
class Entered:
    """Somebody who has just come in, with the token of their new session."""

    person: Person
    token: str


class Accounts:
    """Owned by the event loop."""

    def __init__(
        self,
        users: Users,
        sessions: AccountSessions,
        passwords: Passwords | None = None,
        *,
        clock: Callable[[], datetime] = utc_now,
        by_name: Throttle | None = None,
        by_address: Throttle | None = None,
    ) -> None:
        self._users = users
        self._sessions = sessions
        self._passwords = passwords or Passwords()
        self._clock = clock
        self._by_name = by_name or Throttle(FAILURES_PER_NAME)
        self._by_address = by_address or Throttle(FAILURES_PER_ADDRESS)

    async def log_in(self, login: str, password: str, address: str) -> Entered:
        """Raises UnauthorizedError, in the same words and after the same work whether the login or
        the password is wrong, and RateLimitedError after too many failures."""
        user = await self._check(fold_login(login[:MAX_LOGIN_CHARS]), password, address)
        if user.is_disabled:
            raise _disabled()
        entered = await self._enter(user)
        assert user.password_hash is not None
        if self._passwords.is_outdated(user.password_hash):
            anew = await self._passwords.hash(password)
            await self._users.rehash(user.id, user.password_hash, anew)
        return entered

    async def register(
        self, name: str, login: str, password: str, *, role: str, link: OneTimeLink | None = None
    ) -> Entered:
        """Makes an account, by a link if one is named, and enters it; the first teacher's teaches
        the courses that nobody teaches. Raises BadRequestError, ConflictError for a login that is
        taken, NotFoundError for a link that is used up."""
        name, login = check_name(name), check_login(login)
        check_password(password)
        account = NewAccount(name, login, await self._passwords.hash(password), role)
        try:
            user = await self._users.add(
                account,
                link=link.id if link else None,
                at=self._clock(),
                adopts=link is not None and link.purpose == "first_teacher",
            )
        except LoginTakenError:
            raise ConflictError(
                "Somebody has this login already; choose another one.",
                message_zh="该用户名已被使用，请换一个。",
                param="login",
                reason="login_taken",
            ) from None
        except LinkUsedError:
            raise gone() from None
        return await self._enter(user)

    async def reset(self, link: OneTimeLink, password: str) -> Entered:
        """A new password by a link; ends every session, then enters. Raises BadRequestError,
        NotFoundError, UnauthorizedError for an account that is disabled."""
        check_password(password)
        user = await self._users.get(link.user_id or "")
        if user is None or user.is_disabled:
            raise _disabled()
        kept = await self._passwords.hash(password)
        try:
            await self._users.set_password(user.id, kept, link=link.id, at=self._clock())
        except LinkUsedError:
            raise gone() from None
        await self._sessions.end_all(UserId(user.id))
        return await self._enter(await self._users.get(user.id) or user)

    async def log_out(self, token: str) -> None:
        """Ends one session."""
        await self._sessions.end(token)

    async def rename(self, person: Person, name: str) -> Person:
        """Gives an account another name. Raises BadRequestError."""
        await self._users.rename(person.user, check_name(name))
        return await self._reread(person)

    async def change_password(
        self, person: Person, old: str, new: str, *, address: str, token: str
    ) -> None:
        """Ends the other sessions of the account. Raises BadRequestError, UnauthorizedError,
        RateLimitedError."""
        check_password(new)
        await self.check_own_password(person, old, address)
        kept = await self._passwords.hash(new)
        await self._users.set_password(person.user, kept, at=self._clock())
        await self._sessions.end_all(person.user, but=token)

    async def check_own_password(self, person: Person, password: str, address: str) -> None:
        """Whether whoever uses the session is its owner. Raises UnauthorizedError,
        RateLimitedError."""
        await self._check(person.login or "", password, address)

    async def disable(self, user: UserId, is_disabled: bool) -> None:
        """Shuts an account out at once, or lets it in again."""
        await self._users.set_disabled(user, is_disabled)
        if is_disabled:
            await self._sessions.end_all(user)

    async def _check(self, login: str, password: str, address: str) -> User:
        self._by_address.enter(address)
        try:
            self._by_name.enter(login)
        except RateLimitedError:
            self._by_address.take_back(address)
            raise
        user = await self._users.with_login(login) if login.isprintable() else None
        kept = None if user is None else user.password_hash
        is_failure = False
        try:
            is_failure = not await self._passwords.verify(password[: MAX_CHARS + 1], kept)
        finally:
            if not is_failure:  # it was right, or nobody has looked
                self._by_name.take_back(login)
                self._by_address.take_back(address)
        if not is_failure and user is not None:
            return user
        raise UnauthorizedError(
            "The login or the password is wrong.",
            message_zh="用户名或密码错误。",
            param="password",
            reason="wrong_password",
        )

    async def _enter(self, user: User) -> Entered:
        return Entered(person_from(user), await self._sessions.begin(user))

    async def _reread(self, person: Person) -> Person:
        user = await self._users.get(person.user)
        if user is None:
            raise UnauthorizedError("This account is gone.")
        self._sessions.changed(user)
        return person_from(user)


def _disabled() -> UnauthorizedError:
    return UnauthorizedError(
        "This account is disabled; ask your teacher.",
        message_zh="此账号已停用，请联系教师。",
        reason="disabled",
    )


def fold_login(login: str) -> str:
    """The login as it is kept and compared: its case and its way of writing do not matter."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", login).casefold()).strip()


def check_login(login: str) -> str:
    """The folded login. Raises BadRequestError for what cannot be one."""
    folded = fold_login(login)
    if not MIN_LOGIN_CHARS <= len(folded) <= MAX_LOGIN_CHARS or not folded.isprintable():
        raise BadRequestError(
            f"A login has {MIN_LOGIN_CHARS} to {MAX_LOGIN_CHARS} characters.",
            message_zh=f"用户名须为 {MIN_LOGIN_CHARS} 到 {MAX_LOGIN_CHARS} 个字符。",
            param="login",
            reason="bad_login",
        )
    if any(character.isspace() for character in folded):
        raise BadRequestError(
            "A login has no blanks.",
            message_zh="用户名不能含有空格。",
            param="login",
            reason="bad_login",
        )
    return folded


def check_name(name: str) -> str:
    """The name on one line. Raises BadRequestError for an empty or a very long one."""
    line = " ".join(unicodedata.normalize("NFC", name).split())
    if not 1 <= len(line) <= MAX_NAME_CHARS or not line.isprintable():
        raise BadRequestError(
            f"A name has 1 to {MAX_NAME_CHARS} characters.",
            message_zh=f"姓名须为 1 到 {MAX_NAME_CHARS} 个字符。",
            param="name",
            reason="bad_name",
        )
    return line
