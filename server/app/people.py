"""`Person`: somebody who is known, as the application sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from server.service.auth import UserId
from server.store.schema import User

Role = Literal["guest", "student", "teacher"]


@dataclass(frozen=True, slots=True)
class Person:
    """Who a request comes from. Guests have neither name nor login."""

    user: UserId
    role: Role = "guest"
    name: str | None = None
    login: str | None = None

    @property
    def is_guest(self) -> bool:
        return self.role == "guest"

    @property
    def is_teacher(self) -> bool:
        """Has a teacher's account, of whatever course."""
        return self.role == "teacher"

    def as_json(self) -> dict[str, Any]:
        """What `GET /api/me` tells."""
        return {
            "id": self.user,
            "role": self.role,
            "name": self.name,
            "login": self.login,
            "is_guest": self.is_guest,
        }


def person_from(user: User) -> Person:
    """A row of the store as a person."""
    return Person(UserId(user.id), cast(Role, user.role), user.name, user.login)
