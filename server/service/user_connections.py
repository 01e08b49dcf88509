"""`UserConnections`: how many WebSockets each user has open."""

from __future__ import annotations

from server.service.auth import UserId
from server.service.errors import RateLimitedError

RETRY_CONNECTION_MS = 5000
"""When it is worth trying again to connect where there are too many connections."""


class UserConnections:
    """Owned by the event loop's thread."""

    def __init__(self, max_per_user: int) -> None:
        self._max_per_user = max_per_user
        self._counts: dict[UserId, int] = {}

    def enter(self, user: UserId) -> None:
        """Counts one more. Raises RateLimitedError when the user has too many."""
        count = self._counts.get(user, 0)
        if count >= self._max_per_user:
            raise RateLimitedError(
                f"You have {count} connections open already.", retry_after_ms=RETRY_CONNECTION_MS
            )
        self._counts[user] = count + 1

    def leave(self, user: UserId) -> None:
        """Counts one less."""
        count = self._counts.pop(user) - 1
        if count:
            self._counts[user] = count
