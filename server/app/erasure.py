"""`Erasure`: everything that is kept of a person is deleted."""

from __future__ import annotations

from functools import partial

from server.app.account_sessions import AccountSessions
from server.app.run_end import end_runs, leave_runs
from server.service.auth import UserId
from server.service.runs import RunRegistry
from server.store.conversations import Conversations


class Erasure:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self, runs: RunRegistry, sessions: AccountSessions, conversations: Conversations
    ) -> None:
        self._runs = runs
        self._sessions = sessions
        self._conversations = conversations

    async def erase(self, user: UserId) -> None:
        """Ends the user's sessions (which closes their sockets) and running answers, then deletes
        the user with conversations, feedback, enrolments and links in one transaction. Materials
        that they uploaded stay, with nobody's name on them. Unknown users are ignored.

        Raises ConversationBusyError when an answer does not end: then nothing is deleted, and the
        call may be repeated."""
        await self._sessions.end_all(user)
        running = partial(self._runs.active, user)
        await end_runs(running)
        await self._conversations.erase_user(user)
        leave_runs(running)
