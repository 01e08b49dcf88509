"""Somebody's own conversations: listed, read, deleted, exported."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from server.app.access import Access, Need, guarded, person_of
from server.app.api_replies import json_reply
from server.app.records import export_jsonl, message_json, time_json
from server.app.run_end import end_run
from server.service.auth import UserId
from server.service.errors import NotFoundError
from server.service.runs import RunRegistry
from server.store.conversations import Conversations
from server.store.courses import Courses
from server.store.messages import Messages
from server.store.schema import Conversation


class ConversationApi:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self,
        access: Access,
        runs: RunRegistry,
        courses: Courses,
        conversations: Conversations,
        messages: Messages,
    ) -> None:
        self._access = access
        self._runs = runs
        self._courses = courses
        self._conversations = conversations
        self._messages = messages

    def routes(self) -> list[BaseRoute]:
        """The routes, ready for an application."""
        one = "/api/conversations/{conversation}"
        return [
            guarded("/api/conversations", self.list_conversations, ["GET"], Need.OWNER),
            guarded(one, self.conversation, ["GET"], Need.OWNER),
            guarded(one, self.delete_conversation, ["DELETE"], Need.OWNER),
            guarded(f"{one}/export", self.export, ["GET"], Need.OWNER),
        ]

    async def list_conversations(self, request: Request) -> Response:
        """The user's conversations, the latest used first; of one course with `?course=`."""
        user, course_id = person_of(request).user, None
        if named := request.query_params.get("course"):
            course_id = (await self._access.member(user, named)).course_id
        summaries = await self._conversations.of_user(user, course_id)
        conversations = [
            {
                "id": summary.conversation.id,
                "course": summary.conversation.course_id,
                "title": summary.conversation.title,
                "updated_at": time_json(summary.conversation.updated_at),
                "num_messages": summary.num_messages,
            }
            for summary in summaries
        ]
        return json_reply({"conversations": conversations})

    async def conversation(self, request: Request) -> Response:
        """One conversation with all its messages, branches included, in order of making."""
        user = person_of(request).user
        conversation = await self._own(user, request)
        # Looked up before the messages: a run that ends in between is then found stored.
        active = self._runs.active_in(conversation.id)
        messages = await self._messages.of_conversation(conversation.id)
        ids = [message.id for message in messages]
        passages = await self._messages.passages(ids)
        feedback = await self._messages.feedback(user, ids)
        return json_reply(
            {
                "id": conversation.id,
                "course": conversation.course_id,
                "title": conversation.title,
                "messages": [
                    message_json(message, passages.get(message.id, ()), feedback.get(message.id))
                    for message in messages
                ],
                "active_run": active.id if active else None,
            }
        )

    async def delete_conversation(self, request: Request) -> Response:
        """Deletes a conversation; an answer that still runs in it is stopped first."""
        user = person_of(request).user
        conversation = await self._own(user, request)
        active = self._runs.active_in(conversation.id)
        if active is not None:
            await end_run(active)
        await self._conversations.delete(user, conversation.id)
        return Response(status_code=204)

    async def export(self, request: Request) -> Response:
        """A conversation as JSON lines: itself, then each message with how it ended."""
        user = person_of(request).user
        conversation = await self._own(user, request)
        course = await self._courses.get(conversation.course_id or "")
        messages = await self._messages.of_conversation(conversation.id)
        ids = [message.id for message in messages]
        passages = await self._messages.passages(ids)
        feedback = await self._messages.feedback(user, ids)
        return Response(
            export_jsonl(
                conversation, course.title if course else None, messages, passages, feedback
            ),
            media_type="application/jsonl",
            headers={
                "Cache-Control": "no-store",
                "Content-Disposition": f'attachment; filename="{conversation.id}.jsonl"',
            },
        )

    async def _own(self, user: UserId, request: Request) -> Conversation:
        conversation = await self._conversations.get(user, request.path_params["conversation"])
        if conversation is None:
            raise NotFoundError("There is no such conversation.")
        return conversation
