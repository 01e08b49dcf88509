"""What WebSocket sessions share, and the plain chat that needs no application."""

from __future__ import annotations

from dataclasses import dataclass

from server.service.auth import Auth, UserId
from server.service.conversation import ConversationApp
from server.service.generation import Generation
from server.service.limits import ServiceLimits
from server.service.messages import Chat
from server.service.runs import Run, RunRegistry


@dataclass(slots=True)
class SocketContext:
    """Owned by the event loop's thread. `app` None: only `chat` is answered."""

    auth: Auth
    generation: Generation
    runs: RunRegistry
    limits: ServiceLimits
    app: ConversationApp | None = None

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
            prompt = await self.generation.prepare_chat(message.messages)
            completion = await self.generation.relay(run, prompt, message.options, salt=user)
            self.generation.finish_run(run, completion, can_continue=False)

        return self.runs.open(user, produce, key=message.id)
