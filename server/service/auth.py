"""Who is asking: signed session cookies and API keys.

A session value is `<user id>.<signature>`; the signature is HMAC-SHA256 under the server's
secret, so a client cannot choose its user id. The value carries no expiry: a session is only a
stable anonymous identity, and rotating the secret ends them all. Where the page asks for a key, the
user id names the key, and the session ends with it.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import NewType

from server.service.errors import ForbiddenError
from server.service.key_store import Access, KeyRecord, KeyRing, KeyStore

__all__ = ["ASK", "COOKIE_NAME", "Access", "Auth", "Caller", "UserId"]

UserId = NewType("UserId", str)

ASK = frozenset({Access.CHAT, Access.BATCH})
"""Either of them lets a caller use the API."""

COOKIE_NAME = "lectern_session"
COOKIE_MAX_AGE_S = 365 * 24 * 3600
_USER_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")
# An anonymous user id is 22 random characters: none looks like one of these.
_KEY_USER = re.compile(r"key-([0-9a-f]{24})")
_LOGIN_USER = re.compile(r"login-([0-9a-f]{24})-[A-Za-z0-9_-]{22}")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request. `key_name`: the name of its API key, for the log."""

    user: UserId
    access: frozenset[Access] = frozenset(Access)
    key_name: str | None = None


class Auth:
    """Makes and checks sessions, and checks keys. Owned by the event loop's thread.

    Without keys it is open: programs need none and an anonymous WebSocket gets a session of its
    own. `asks_for_login`: where keys are needed, the page needs one too."""

    def __init__(
        self,
        secret: bytes,
        api_keys: Sequence[str] | KeyStore = (),
        *,
        asks_for_login: bool = False,
    ) -> None:
        if len(secret) < 16:
            raise ValueError("the session secret must have at least 16 bytes")
        self._secret = secret
        if not isinstance(api_keys, KeyStore):
            api_keys = KeyStore(ring=KeyRing.of(api_keys))
        self.keys = api_keys
        self._asks_for_login = asks_for_login

    @property
    def is_open(self) -> bool:
        """True when no API keys are needed."""
        return not self.keys.is_closed

    @property
    def needs_login(self) -> bool:
        """The page gives a session only to those who have a key."""
        return self._asks_for_login and not self.is_open

    def cache_salt(self, caller: Caller) -> str:
        """What roots the prefix cache of a program's requests: callers with keys of their own do
        not share prefixes."""
        return "" if self.is_open else caller.user

    def new_session(self) -> tuple[UserId, str]:
        """A fresh random user and the session value to put into a cookie."""
        user = UserId(secrets.token_urlsafe(16))
        return user, self.sign(user)

    def log_in(self, authorization: str | None) -> str | None:
        """The session value for a browser that gives a key as its password (HTTP Basic; the name
        does not matter); None for anything else."""
        scheme, _, encoded = (authorization or "").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            _, _, key = base64.b64decode(encoded, validate=True).decode().partition(":")
        except ValueError:  # neither base64 nor UTF-8
            return None
        record = self._chat_key(self.keys.ring.find(key))
        if record is None:
            return None
        return self.sign(UserId(f"login-{record.id}-{secrets.token_urlsafe(16)}"))

    def sign(self, user: UserId) -> str:
        """The session value of `user`."""
        return f"{user}.{self._signature(user)}"

    def user_from_session(self, value: str) -> UserId | None:
        """The user of a session value; None if it was not made here, or its key is valid no
        more."""
        user, _, signature = value.rpartition(".")
        if not _USER_ID.fullmatch(user) or not signature.isascii():
            return None
        if not hmac.compare_digest(signature, self._signature(user)):
            return None
        return UserId(user) if self.is_valid(UserId(user)) else None

    def user_from_cookie(self, cookie_header: str | None) -> UserId | None:
        """The user of a `Cookie` header; None without a session that is valid here."""
        if not cookie_header:
            return None
        try:
            morsel = SimpleCookie(cookie_header).get(COOKIE_NAME)
        except CookieError:
            return None
        return self.user_from_session(morsel.value) if morsel else None

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

    def is_valid(self, user: UserId) -> bool:
        """Whether a user that was known may still be served: a key's user while the key may chat,
        an anonymous one while no login is needed."""
        if found := _KEY_USER.fullmatch(user) or _LOGIN_USER.fullmatch(user):
            return self._chat_key(self.keys.ring.with_id(found[1])) is not None
        return not self.needs_login

    def key_name(self, user: UserId) -> str | None:
        """The name of the key that a user is or has logged in with, if it is valid."""
        found = _KEY_USER.fullmatch(user) or _LOGIN_USER.fullmatch(user)
        record = self.keys.ring.with_id(found[1]) if found else None
        return None if record is None else record.name

    @staticmethod
    def account_of(user: str) -> str:
        """Whose limits a user's requests count for: its key's, in however many browsers somebody
        has logged in with it; else its own."""
        found = _LOGIN_USER.fullmatch(user)
        return user if found is None else f"key-{found[1]}"

    @staticmethod
    def check_access(caller: Caller, allowed: Iterable[Access]) -> None:
        """Raises ForbiddenError for a caller that may do none of what would be enough."""
        if caller.access.isdisjoint(allowed):
            raise ForbiddenError(f"The API key {caller.key_name!r} is not for this address.")

    @staticmethod
    def set_cookie(value: str, *, secure: bool = False) -> str:
        """The `Set-Cookie` header that keeps a session value."""
        flags = "; Secure" if secure else ""
        return (
            f"{COOKIE_NAME}={value}; Path=/; Max-Age={COOKIE_MAX_AGE_S}; "
            f"HttpOnly; SameSite=Lax{flags}"
        )

    @staticmethod
    def _chat_key(record: KeyRecord | None) -> KeyRecord | None:
        return record if record is not None and Access.CHAT in record.access else None

    def _signature(self, user: str) -> str:
        digest = hmac.digest(self._secret, b"session:" + user.encode(), "sha256")
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _user_of(record: KeyRecord) -> UserId:
    return UserId(f"key-{record.id}")
