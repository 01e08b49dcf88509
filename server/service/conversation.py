"""`ConversationApp`: how an application plugs into the WebSocket. It is implemented above."""

from __future__ import annotations

from typing import Any, Protocol

from server.service.auth import UserId
from server.service.messages import Ask, Carry, Continue, Count, Edit, Feedback, Regenerate, Undo
from server.service.runs import Run


class ConversationApp(Protocol):
    """Each method opens a run (`RunRegistry.open(…, key=message.id)`, so that a repeated message
    gives the same run) and returns at once; the run's task does the work. A refusal that is known
    at once is raised as a ServiceError and opens no run. The others do their work at once."""

    async def ask(self, user: UserId, message: Ask) -> Run: ...

    async def continue_(self, user: UserId, message: Continue) -> Run: ...

    async def regenerate(self, user: UserId, message: Regenerate) -> Run: ...

    async def edit(self, user: UserId, message: Edit) -> Run: ...

    async def carry(self, user: UserId, message: Carry) -> Run: ...

    async def feedback(self, user: UserId, message: Feedback) -> None: ...

    async def undo(self, user: UserId, message: Undo) -> dict[str, Any]:
        """The fields of its `done`."""
        ...

    async def count(self, user: UserId, message: Count) -> dict[str, Any]:
        """The fields of its `counted`."""
        ...

    def welcome(self, user: UserId) -> dict[str, Any]:
        """What the application adds to a `welcome`."""
        ...
