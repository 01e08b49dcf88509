"""Who is asking: signed session cookies and API keys. Pure functions of a secret; no storage.

A session value is `<user id>.<signature>`; the signature is HMAC-SHA256 under the server's
secret, so a client cannot choose its user id. The value carries no expiry: a session is only a
stable anonymous identity, and rotating the secret ends them all.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from http.cookies import CookieError, SimpleCookie
from typing import NewType

UserId = NewType("UserId", str)

COOKIE_NAME = "lectern_session"
COOKIE_MAX_AGE_S = 365 * 24 * 3600
_USER_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")


class Access(StrEnum):
    """What a caller may do."""

    CHAT = "chat"
    """Ask the model, at any priority."""
    BATCH = "batch"
    """Ask the model, behind everybody who waits for an answer."""
    METRICS = "metrics"
    """Read the metrics."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request. `key_name`: the name of its API key, for the log."""

    user: UserId
    access: frozenset[Access] = frozenset(Access)
    key_name: str | None = None


class Auth:
    """Makes and checks sessions. Immutable; `api_keys` empty means the open demo mode, in which
    programs need no key and an anonymous WebSocket gets a session of its own."""

    def __init__(self, secret: bytes, api_keys: Sequence[str] = ()) -> None:
        if len(secret) < 16:
            raise ValueError("the session secret must have at least 16 bytes")
        self._secret = secret
        self._keys = tuple(key.encode() for key in api_keys)

    @property
    def is_open(self) -> bool:
        """True when no API keys are configured."""
        return not self._keys

    def new_session(self) -> tuple[UserId, str]:
        """A fresh random user and the session value to put into a cookie."""
        user = UserId(secrets.token_urlsafe(16))
        return user, self.sign(user)

    def sign(self, user: UserId) -> str:
        """The session value of `user`."""
        return f"{user}.{self._signature(user)}"

    def user_from_session(self, value: str) -> UserId | None:
        """The user of a session value; None if it was not made here."""
        user, _, signature = value.rpartition(".")
        if not _USER_ID.fullmatch(user) or not signature.isascii():
            return None
        if not hmac.compare_digest(signature, self._signature(user)):
            return None
        return UserId(user)

    def user_from_cookie(self, cookie_header: str | None) -> UserId | None:
        """The user of a `Cookie` header; None without a session that was made here."""
        if not cookie_header:
            return None
        try:
            morsel = SimpleCookie(cookie_header).get(COOKIE_NAME)
        except CookieError:
            return None
        return self.user_from_session(morsel.value) if morsel else None

    def user_from_key(self, key: str) -> UserId | None:
        """The user that stands for an API key; None if the key is not configured."""
        found = False
        for known in self._keys:  # no early exit: the time must not tell which key is near
            found |= hmac.compare_digest(known, key.encode())
        if not found:
            return None
        return UserId("key-" + hashlib.sha256(key.encode()).hexdigest()[:24])

    def user_from_bearer(self, authorization: str | None) -> UserId | None:
        """The user of an `Authorization: Bearer …` header. In open mode every program is one
        shared user, whatever key it sends."""
        if self.is_open:
            return UserId("anonymous")
        scheme, _, key = (authorization or "").partition(" ")
        return self.user_from_key(key.strip()) if scheme.lower() == "bearer" else None

    def caller_from_bearer(self, authorization: str | None) -> Caller | None:
        """`user_from_bearer`, with what the caller may do."""
        user = self.user_from_bearer(authorization)
        return None if user is None else Caller(user)

    @staticmethod
    def set_cookie(value: str, *, secure: bool = False) -> str:
        """The `Set-Cookie` header that keeps a session value."""
        flags = "; Secure" if secure else ""
        return (
            f"{COOKIE_NAME}={value}; Path=/; Max-Age={COOKIE_MAX_AGE_S}; "
            f"HttpOnly; SameSite=Lax{flags}"
        )

    def _signature(self, user: str) -> str:
        digest = hmac.digest(self._secret, b"session:" + user.encode(), "sha256")
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
