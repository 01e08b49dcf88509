"""What WebSocket sessions share, and the plain chat that needs no application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from server.service.auth import Auth, UserId
from server.service.conversation import ConversationApp
from server.service.fan_out import FanOut
from server.service.generation import Generation
from server.service.limits import ServiceLimits
from server.service.messages import Chat
from server.service.origin import OriginPolicy
from server.service.run import Run
from server.service.runs import RunRegistry
from server.service.user_connections import UserConnections
from server.service.user_sessions import UserSessions


def _nobody(_code: str) -> None:
    pass


@dataclass(slots=True)
class SocketContext:
    """Owned by the event loop's thread. `app` None: only `chat` is answered."""

    auth: Auth
    generation: Generation
    runs: RunRegistry
    limits: ServiceLimits
    fan_out: FanOut
    app: ConversationApp | None = None
    on_refused: Callable[[str], None] = _nobody
    """Hears the code of each error that a message gets."""
    origins: OriginPolicy = field(default_factory=OriginPolicy)
    connections: UserConnections = field(init=False)
    user_sessions: UserSessions = field(default_factory=UserSessions)

    def __post_init__(self) -> None:
        self.connections = UserConnections(self.limits.max_connections_per_user)

    def chat(self, user: UserId, message: Chat) -> Run:
        """Opens the run of a `chat` message. Raises what `RunRegistry.open` does."""

        async def produce(run: Run) -> None:
            run.emit(
                "accepted",
                id=message.id,
                conversation=None,
                message=None,
                user_message=None,
                parent=None,
            )
            terms = self.generation.run_terms(run, message.options)
            prompt = await self.generation.prepare_chat(
                message.messages, deadline_s=terms.deadline_s
            )
            completion = await self.generation.relay(
                run,
                prompt,
                message.options,
                salt=user,
                terms=terms,
                splits_reasoning=True,
            )
            self.generation.finish_run(run, completion, can_continue=False)

        return self.runs.open(user, produce, key=message.id)
