"""`Links`: one-time links to an account, and what their tokens are worth."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from server.app.account_sessions import token_id
from server.service.errors import NotFoundError
from server.store.column_types import utc_now
from server.store.schema import OneTimeLink, User
from server.store.users import Users

Purpose = Literal["first_teacher", "invite", "reset"]

LIFE_HOURS = 24


@dataclass(frozen=True, slots=True)
class IssuedLink:
    """A new link; its token is never seen again."""

    token: str
    expires_at: datetime

    @property
    def path(self) -> str:
        return f"/start/{self.token}"


class Links:
    """Owned by the event loop; keeps no state of its own. A link lives for a day, and looking at it
    does not use it up: whoever passes a link on may have it looked at by a preview."""

    def __init__(self, users: Users, clock: Callable[[], datetime] = utc_now) -> None:
        self._users = users
        self._clock = clock

    async def issue(
        self, purpose: Purpose, *, role: str = "teacher", user_id: str | None = None
    ) -> IssuedLink:
        """A new link; of a reset, for this user."""
        token, now = secrets.token_urlsafe(24), self._clock()
        link = IssuedLink(token, now + timedelta(hours=LIFE_HOURS))
        await self._users.add_link(
            OneTimeLink(
                id=token_id(token),
                purpose=purpose,
                user_id=user_id,
                role=role,
                created_at=now,
                expires_at=link.expires_at,
            )
        )
        return link

    async def for_first_teacher(self) -> IssuedLink | None:
        """A link to the first teacher's account; None once there is a teacher."""
        if await self._users.has_teacher():
            return None
        return await self.issue("first_teacher")

    async def find(self, token: str) -> tuple[OneTimeLink, User | None]:
        """A link that can still be used, and whose password it resets. Raises NotFoundError."""
        found = await self._users.find_link(token_id(token), self._clock())
        if found is None or (
            found[0].purpose == "first_teacher" and await self._users.has_teacher()
        ):
            raise gone()
        return found


def gone() -> NotFoundError:
    """What is told of a link that opens nothing."""
    return NotFoundError(
        "This link was used already, or is too old. Ask for a new one.",
        message_zh="此链接已被使用或已过期，请重新索取。",
        reason="link_gone",
    )
