"""`welcome`: the first message of a WebSocket, with what a client must know to begin."""

from __future__ import annotations

from typing import Any

from server.service.auth import UserId
from server.service.ws_context import SocketContext


def welcome(context: SocketContext, user: UserId, session: str) -> dict[str, Any]:
    """The message for a user whose session is called `session`, with the application's own
    fields."""
    model, limits = context.generation.model, context.limits
    return {
        "type": "welcome",
        "session": session,
        "model": {
            "name": model.name,
            "is_fallback": model.is_fallback,
            "max_model_len": model.max_model_len,
            "window": model.window,
        },
        "limits": {
            "max_message_bytes": limits.max_message_bytes,
            "max_tokens": model.window,
            "max_runs_per_connection": limits.max_runs_per_connection,
            "max_runs_per_user": limits.max_runs_per_user,
            "max_resumes": limits.max_resumes,
            "max_messages_per_s": limits.max_messages_per_s,
        },
        "active_runs": [
            {
                "run": run.id,
                "conversation": run.conversation,
                "message": run.message,
                "last_seq": run.last_seq,
            }
            for run in context.runs.active(user)
        ],
        **({} if context.app is None else context.app.welcome(user)),
    }
