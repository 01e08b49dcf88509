"""`Passwords`: argon2id in threads, few at once."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from server.service.errors import BadRequestError, RateLimitedError

MIN_CHARS, MAX_CHARS = 10, 256

_MAX_AT_ONCE = 2
_MAX_WAITING = 64
_NOBODY = (
    "$argon2id$v=19$m=19456,t=2,p=1$TYBqEE2P9exT6acyyxdC4Q"
    "$BrmtASgpa7bRyobWddphMZd57LJNKHP9+5D3DwmgIDk"
)
"""Hash of no password that anybody knows: unknown logins take as long as known ones."""


class Passwords:
    """Owned by the event loop. A hash takes 19 MiB and one core for 50 ms or more; two at once
    leave the machine to the answers."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)
        self._limiter = anyio.CapacityLimiter(_MAX_AT_ONCE)
        self._num_inside = 0

    async def hash(self, password: str) -> str:
        """What is kept of a password. Raises RateLimitedError when too many wait."""
        async with self._place():
            return await anyio.to_thread.run_sync(
                self._hasher.hash, _normal(password), limiter=self._limiter
            )

    async def verify(self, password: str, kept: str | None) -> bool:
        """Whether it is the password of what is kept; None takes as long, and is False. Raises
        RateLimitedError when too many wait."""
        async with self._place():
            is_right = await anyio.to_thread.run_sync(
                self._verify, password, kept or _NOBODY, limiter=self._limiter
            )
        return is_right and kept is not None

    def is_outdated(self, kept: str) -> bool:
        """Made with other parameters than hashes are made with now."""
        return self._hasher.check_needs_rehash(kept)

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        if self._num_inside >= _MAX_WAITING:
            raise RateLimitedError(
                "Many people log in just now; try again in a few seconds.",
                message_zh="当前登录人数较多，请几秒后重试。",
                retry_after_ms=5000,
            )
        self._num_inside += 1
        try:
            yield
        finally:
            self._num_inside -= 1

    def _verify(self, password: str, kept: str) -> bool:
        try:
            return self._hasher.verify(kept, _normal(password))
        except (VerificationError, InvalidHashError):
            return False


def check_password(password: str) -> None:
    """Raises BadRequestError for one that is too short or too long to be taken."""
    if len(password) < MIN_CHARS:
        raise BadRequestError(
            f"The password must have at least {MIN_CHARS} characters.",
            message_zh=f"密码至少需要 {MIN_CHARS} 个字符。",
            param="password",
            reason="password_too_short",
        )
    if len(password) > MAX_CHARS:
        raise BadRequestError(
            f"The password may have at most {MAX_CHARS} characters.",
            message_zh=f"密码最多 {MAX_CHARS} 个字符。",
            param="password",
            reason="password_too_long",
        )


def _normal(password: str) -> bytes:
    """The same bytes however a keyboard has composed the characters."""
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
