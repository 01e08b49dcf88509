"""Who is asking: session cookies and API keys.

A guest's session value is `<user id>.<signature>`; the signature is HMAC-SHA256 under the server's
secret, so a client cannot choose its user id. It carries no expiry: it is only a stable anonymous
identity, and rotating the secret ends them all. Where people have accounts, the application keeps a
`SessionBook`: a session that it knows is a random token, which ends when the book says so.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import NewType, Protocol

from server.service.errors import ForbiddenError
from server.service.key_store import Access, KeyRecord, KeyRing, KeyStore

__all__ = ["ASK", "COOKIE_NAME", "Access", "Auth", "Caller", "SessionBook", "UserId", "is_account"]

UserId = NewType("UserId", str)

ASK = frozenset({Access.CHAT, Access.BATCH})
"""Either of them lets a caller use the API."""

COOKIE_NAME = "lectern_session"
COOKIE_MAX_AGE_S = 365 * 24 * 3600
TOKEN_PREFIX = "s_"
"""How a session token begins. No signed value is one: those hold a dot."""
_USER_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")
# An anonymous user id is 22 random characters: none looks like one of these.
_KEY_USER = re.compile(r"key-([0-9a-f]{24})")
_ACCOUNT_USER = re.compile(r"[0-9a-f]{26}")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request. `key_name`: the name of its API key, for the log."""

    user: UserId
    access: frozenset[Access] = frozenset(Access)
    key_name: str | None = None


class SessionBook(Protocol):
    """The sessions of people with accounts. Asked on every request and message: from memory, never
    waiting. An account's user id is 26 hex digits."""

    def find(self, token: str) -> Caller | None:
        """Whose session it is, with what they may ask of the API; None for one that has ended or
        never was."""
        ...

    def caller(self, user: UserId) -> Caller | None:
        """The same for an account; None when it has no session left."""
        ...


class Auth:
    """Makes and checks sessions, and checks keys. Owned by the event loop's thread.

    Without keys it is open: programs need none and an anonymous WebSocket gets a session of its
    own, unless `asks_for_login`: then the page is for people with an account."""

    def __init__(
        self,
        secret: bytes,
        api_keys: Sequence[str] | KeyStore = (),
        *,
        asks_for_login: bool = False,
        sessions: SessionBook | None = None,
    ) -> None:
        if len(secret) < 16:
            raise ValueError("the session secret must have at least 16 bytes")
        self._secret = secret
        if not isinstance(api_keys, KeyStore):
            api_keys = KeyStore(ring=KeyRing.of(api_keys))
        self.keys = api_keys
        self._asks_for_login = asks_for_login
        self._sessions = sessions

    @property
    def is_open(self) -> bool:
        """True when no API keys are needed."""
        return not self.keys.is_closed

    @property
    def needs_login(self) -> bool:
        """The page is for people with an account: nobody else gets a session."""
        return self._asks_for_login

    @property
    def takes_strangers(self) -> bool:
        """A WebSocket without a session or a key gets a session of its own."""
        return self.is_open and not self.needs_login

    def cache_salt(self, caller: Caller) -> str:
        """What roots the prefix cache of a program's requests: callers with keys of their own do
        not share prefixes."""
        return "" if self.is_open else caller.user

    def new_session(self) -> tuple[UserId, str]:
        """A fresh random user and the session value to put into a cookie."""
        user = UserId(secrets.token_urlsafe(16))
        return user, self.sign(user)

    def sign(self, user: UserId) -> str:
        """The session value of `user`."""
        return f"{user}.{self._signature(user)}"

    def user_from_session(self, value: str) -> UserId | None:
        """The user of a session value; None if it was not made here, or has ended."""
        if is_token(value):
            caller = self._sessions.find(value) if self._sessions else None
            return None if caller is None else caller.user
        user, _, signature = value.rpartition(".")
        if not _USER_ID.fullmatch(user) or not signature.isascii():
            return None
        if _ACCOUNT_USER.fullmatch(user):  # an account is entered by its tokens alone
            return None
        if not hmac.compare_digest(signature, self._signature(user)):
            return None
        return UserId(user) if self.is_valid(UserId(user)) else None

    def user_from_cookie(self, cookie_header: str | None) -> UserId | None:
        """The user of a `Cookie` header; None without a session that is valid here."""
        value = self.session_from_cookie(cookie_header)
        return self.user_from_session(value) if value else None

    @staticmethod
    def session_from_cookie(cookie_header: str | None) -> str | None:
        """The session value in a `Cookie` header, whatever it is worth."""
        if not cookie_header:
            return None
        try:
            morsel = SimpleCookie(cookie_header).get(COOKIE_NAME)
        except CookieError:
            return None
        return morsel.value if morsel else None

    def user_from_key(self, key: str) -> UserId | None:
        """The user that stands for an API key which may chat; None for any other."""
        record = self._chat_key(self.keys.ring.find(key))
        return None if record is None else _user_of(record)

    def user_from_bearer(self, authorization: str | None) -> UserId | None:
        """The user of an `Authorization: Bearer …` header. In open mode every program is one
        shared user, whatever key it sends."""
        caller = self.caller_from_bearer(authorization)
        return None if caller is None else caller.user

    def caller_from_bearer(self, authorization: str | None) -> Caller | None:
        """`user_from_bearer`, with what the caller may do."""
        if self.is_open:
            return Caller(UserId("anonymous"))
        scheme, _, key = (authorization or "").partition(" ")
        record = self.keys.ring.find(key.strip()) if scheme.lower() == "bearer" else None
        if record is None:
            return None
        return Caller(_user_of(record), frozenset(record.access), record.name)

    def is_valid(self, user: UserId, session: str | None = None) -> bool:
        """Whether a user that was known may still be served: a key's user while the key may chat,
        an account while it has a session (this one, if one is named), an anonymous user while no
        login is needed."""
        if found := _KEY_USER.fullmatch(user):
            return self._chat_key(self.keys.ring.with_id(found[1])) is not None
        if _ACCOUNT_USER.fullmatch(user):
            if session is not None and is_token(session):
                return self.user_from_session(session) == user
            return self._account(user) is not None
        return not self.needs_login

    def access_of(self, user: UserId) -> frozenset[Access]:
        """What a user may ask of the API itself, beside what the application lets them do.
        Everything where no keys are needed; else a key's access, or an account's."""
        if self.is_open:
            return frozenset(Access)
        if found := _KEY_USER.fullmatch(user):
            record = self.keys.ring.with_id(found[1])
            return frozenset() if record is None else frozenset(record.access)
        caller = self._account(user)
        return frozenset() if caller is None else caller.access

    def key_name(self, user: UserId) -> str | None:
        """The name of the key that a user is, if it is valid."""
        found = _KEY_USER.fullmatch(user)
        record = self.keys.ring.with_id(found[1]) if found else None
        return None if record is None else record.name

    @staticmethod
    def check_access(caller: Caller, allowed: Iterable[Access]) -> None:
        """Raises ForbiddenError for a caller that may do none of what would be enough."""
        if caller.access.isdisjoint(allowed):
            raise ForbiddenError(f"The API key {caller.key_name!r} is not for this address.")

    @staticmethod
    def set_cookie(value: str, *, secure: bool = False, max_age_s: int = COOKIE_MAX_AGE_S) -> str:
        """The `Set-Cookie` header that keeps a session value; for 0 seconds: that drops it."""
        flags = "; Secure" if secure else ""
        return f"{COOKIE_NAME}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Lax{flags}"

    def _account(self, user: UserId) -> Caller | None:
        return self._sessions.caller(user) if self._sessions else None

    @staticmethod
    def _chat_key(record: KeyRecord | None) -> KeyRecord | None:
        return record if record is not None and Access.CHAT in record.access else None

    def _signature(self, user: str) -> str:
        digest = hmac.digest(self._secret, b"session:" + user.encode(), "sha256")
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def is_token(value: str) -> bool:
    """Whether a session value is an account's token. A guest's, which is signed, may begin so."""
    return value.startswith(TOKEN_PREFIX) and "." not in value


def is_account(user: str) -> bool:
    """Whether a user id is an account's: then its row exists, or it was deleted."""
    return _ACCOUNT_USER.fullmatch(user) is not None


def _user_of(record: KeyRecord) -> UserId:
    return UserId(f"key-{record.id}")
