"""`Carrying`: a conversation goes on in a new one, which begins with a summary of it.

The run tells `accepted` with `conversation` and `message` of the new conversation and its summary,
`user_message` and `parent` null, and `carried_from`, the answer up to which the summary goes; then
`progress` while earlier parts are read, `start`, `delta` and `finish` as for an answer. The summary
is a message of role `summary`, without a parent; the first question follows it. Its `context` is
`{window, window_used, turns: how many were to be summarised, turns_left_out, is_extract}`: with
`is_extract` the model gave nothing, and the questions and how their answers began stand in for it.

A summary that was cut or failed is written again, in its place, by `regenerate`.
"""

from __future__ import annotations

from engine.api import Usage
from server.app.answering import Answering
from server.app.records import is_answered, is_whole
from server.app.replay import tell_again
from server.app.summaries import Carried, Summaries
from server.app.titles import next_title
from server.service.auth import UserId
from server.service.errors import (
    BadRequestError,
    ConversationBusyError,
    NotFoundError,
)
from server.service.generation import GenerationOptions
from server.service.messages import Carry, Regenerate
from server.service.runs import Run
from server.service.usage import usage_json
from server.service.user_sessions import UserSessions
from server.store.conversations import Conversations
from server.store.messages import Messages
from server.store.schema import Conversation, MessageState


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
            new, summary = await self._conversations.carry(
                user,
                course_id=course_id,
                title=title,
                carried_from=message.message,
                client_id=message.id,
            )
        elif stored.role != "summary":
            raise BadRequestError("This id was that of another message.", param="id")
        else:
            new, summary = stored.conversation_id, stored.id
            if stored.state == MessageState.RUNNING:
                raise ConversationBusyError("This summary is being written.")
            if stored.text and is_answered(stored):
                self._accept(run, message.id, new, summary, message.message)
                tell_again(run, message.id, stored, (), stored.usage or usage_json(Usage()))
                return
            await self._conversations.summarise_again(summary, client_id=message.id)
        self._accept(run, message.id, new, summary, message.message)
        self._sessions.opened(user, run=run.id, conversation=new, message=summary, title=title)
        await self._summaries.write(run, summary, carried, options)

    async def write_again(
        self, run: Run, message: Regenerate, summary_id: str, options: GenerationOptions
    ) -> None:
        """Writes a summary anew that was cut or came to nothing, in its place, and ends the run.
        A message that is repeated gets what was written for it."""
        user = UserId(run.owner)
        await self._answering.settle()
        summary = await self._messages.get(user, summary_id)
        if summary is None:
            raise NotFoundError("There is no such message.", param="message")
        conversation = await self._conversations.get(user, summary.conversation_id)
        carried_from = None if conversation is None else conversation.carried_from
        source = None
        if carried_from is not None:
            source = await self._messages.get(user, carried_from)
        if conversation is None or source is None:
            raise NotFoundError("What was summarised is gone.", param="message")
        if summary.client_id == message.id and summary.text and is_answered(summary):
            self._accept(run, message.id, summary.conversation_id, summary.id, source.id)
            tell_again(run, message.id, summary, (), summary.usage or usage_json(Usage()))
            return
        if is_whole(summary):
            raise BadRequestError("This summary is whole.", param="message")
        carried = Carried.of(await self._messages.path(source.id))
        await self._conversations.summarise_again(summary.id, client_id=message.id)
        self._accept(run, message.id, conversation.id, summary.id, source.id)
        self._sessions.opened(
            user,
            run=run.id,
            conversation=conversation.id,
            message=summary.id,
            title=conversation.title,
        )
        await self._summaries.write(run, summary.id, carried, options)

    def _accept(
        self, run: Run, client_id: str, conversation: str, summary: str, carried_from: str
    ) -> None:
        run.emit(
            "accepted",
            id=client_id,
            conversation=conversation,
            message=summary,
            user_message=None,
            parent=None,
            carried_from=carried_from,
        )
