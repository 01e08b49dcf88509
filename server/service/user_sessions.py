"""`UserSessions`: every open socket of a user, to be told what happens to the user's own things.

These messages belong to no run: they have neither `run` nor `seq`, are sent once, and are told
only to the user's own sockets. A client that was away reads its list again.

| message | when |
| --- | --- |
| `{"type": "opened", "run", "conversation", "message", "title"}` | an answer begins or goes on in a conversation; sockets that follow the run already do not hear it. `attach` follows it |
| `{"type": "changed", "conversation", "title"}` | it was renamed, or an answer in it has changed without a run (`undo`): it is to be read again |
| `{"type": "deleted", "conversation"}` | it is gone |
"""  # noqa: E501

from __future__ import annotations

from typing import Any, Protocol

from server.service.auth import UserId
from server.service.events import to_json


class Listener(Protocol):
    """A socket as it is seen from here."""

    def hear(self, message: bytes) -> None:
        """Sends a message outside runs."""

    def follows(self, run_id: str) -> bool:
        """Whether it gets the events of this run already."""


class UserSessions:
    """Owned by the event loop's thread."""

    def __init__(self) -> None:
        self._listeners: dict[UserId, dict[Listener, None]] = {}

    def enter(self, user: UserId, listener: Listener) -> None:
        """From now on the socket is this user's. Idempotent."""
        self._listeners.setdefault(user, {})[listener] = None

    def leave(self, user: UserId, listener: Listener) -> None:
        """The socket is the user's no more. Idempotent."""
        listeners = self._listeners.get(user, {})
        listeners.pop(listener, None)
        if not listeners:
            self._listeners.pop(user, None)

    def opened(
        self, user: UserId, *, run: str, conversation: str, message: str, title: str
    ) -> None:
        """An answer begins or goes on in one of the user's conversations."""
        told = {"run": run, "conversation": conversation, "message": message, "title": title}
        self._tell(user, {"type": "opened", **told}, unless_following=run)

    def changed(self, user: UserId, *, conversation: str, title: str) -> None:
        """A conversation of the user's has another title, or changed without a run."""
        self._tell(user, {"type": "changed", "conversation": conversation, "title": title})

    def deleted(self, user: UserId, *, conversation: str) -> None:
        """A conversation of the user's is gone."""
        self._tell(user, {"type": "deleted", "conversation": conversation})

    def _tell(
        self, user: UserId, message: dict[str, Any], *, unless_following: str | None = None
    ) -> None:
        encoded = to_json(message)
        for listener in list(self._listeners.get(user, ())):
            if unless_following is None or not listener.follows(unless_following):
                listener.hear(encoded)
