"""`Carrying`: a conversation goes on in a new one, which begins with a summary of it.

The run tells `accepted` with `conversation` and `message` of the new conversation and its summary,
`user_message` and `parent` null, and `carried_from`, the answer up to which the summary goes; then
`progress` while earlier parts are read, `start`, `delta` and `finish` as for an answer. The summary
is a message of role `summary`, without a parent; the first question follows it. Its `context` is
`{window, turns: how many were to be summarised, turns_left_out, is_extract}`: with `is_extract` the
model gave nothing, and the questions and how their answers began stand in for it.
"""

from __future__ import annotations

import re

from engine.api import Usage
from server.app.answering import Answering
from server.app.records import NO_TIMING, error_fields
from server.app.summaries import Carried, Summaries
from server.service.auth import UserId
from server.service.errors import BadRequestError, ConversationBusyError, UnauthorizedError
from server.service.generation import GenerationOptions
from server.service.messages import Carry
from server.service.runs import Run
from server.service.usage import usage_json
from server.service.user_sessions import UserSessions
from server.store.conversations import Conversations
from server.store.messages import Messages, UserGoneError
from server.store.schema import Conversation, Message, MessageState

_NUMBERED = re.compile(r"(?P<title>.*) \((?P<number>\d{1,3})\)", re.DOTALL)


class Carrying:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self,
        conversations: Conversations,
        messages: Messages,
        answering: Answering,
        summaries: Summaries,
        sessions: UserSessions,
    ) -> None:
        self._conversations = conversations
        self._messages = messages
        self._answering = answering
        self._summaries = summaries
        self._sessions = sessions

    async def carry(
        self,
        run: Run,
        message: Carry,
        *,
        conversation: Conversation,
        course_id: str,
        options: GenerationOptions,
    ) -> None:
        """Carries `conversation` on, and ends the run. A message that is repeated gets the
        summary that was written for it, or another try where there was none."""
        user = UserId(run.owner)
        await self._answering.settle()
        carried = Carried.of(await self._messages.path(message.message))
        title = next_title(conversation.title)
        stored = await self._messages.answer_to_client_id(user, message.id)
        if stored is None:
            try:
                new, summary = await self._conversations.carry(
                    user,
                    course_id=course_id,
                    title=title,
                    carried_from=message.message,
                    client_id=message.id,
                )
            except UserGoneError:
                raise UnauthorizedError("This account was deleted.") from None
        elif stored.role != "summary":
            raise BadRequestError("This id was that of another message.", param="id")
        else:
            new, summary = stored.conversation_id, stored.id
            if stored.state == MessageState.RUNNING:
                raise ConversationBusyError("This summary is being written.")
            if stored.text:
                self._accept(run, message, new, summary)
                _tell_again(run, message.id, stored)
                return
            await self._conversations.summarise_again(summary)
        self._accept(run, message, new, summary)
        self._sessions.opened(user, run=run.id, conversation=new, message=summary, title=title)
        await self._summaries.write(run, summary, carried, options)

    def _accept(self, run: Run, message: Carry, conversation: str, summary: str) -> None:
        run.emit(
            "accepted",
            id=message.id,
            conversation=conversation,
            message=summary,
            user_message=None,
            parent=None,
            carried_from=message.message,
        )


def next_title(title: str) -> str:
    """The title of what a conversation is carried on in: numbered, from 2."""
    match = _NUMBERED.fullmatch(title)
    if match is None:
        return f"{title} (2)"
    return f"{match['title']} ({int(match['number']) + 1})"


def _tell_again(run: Run, client_id: str, summary: Message) -> None:
    run.emit("delta", text=summary.text)
    detail = summary.finish_detail or {}
    if summary.state == MessageState.ERROR:
        run.emit("error", id=client_id, retryable=False, **error_fields(detail))
        return
    usage = summary.usage or usage_json(Usage())
    run.emit(
        "finish",
        finish_reason=summary.finish_reason,
        finish_detail=detail,
        usage=usage,
        timing=summary.timing or NO_TIMING,
        can_continue=False,
        no_support=False,
        max_tokens=summary.max_tokens,
        window_used=usage["total_tokens"],
        can_undo=False,
    )
