"""Somebody's own conversations over HTTP: listed, searched, read, renamed, deleted, exported.

All routes need a session and know only what is the caller's own: of what belongs to somebody else
they say 404.

SUMMARY is `{id, course: its id, title, updated_at, num_messages, carried_from: null, or the
answer of another conversation up to which the summary at the head of this one goes}`. MESSAGE is
described in `server.app.records`.

- GET /api/conversations → `{conversations: [SUMMARY], next: CURSOR or null}`, the latest used
  first. Query parameters, all optional, an empty one counts as absent: `course` (id or slug, of
  which the caller must be a member); `limit`, 1 to 200, else 200; `before`, the `next` of the page
  before; `q`, up to 200 characters: only conversations whose title holds it, or in which a question
  and its answer hold all its words (in English or Chinese, each found by the other's word where it
  is one of the known terms; the last word may be a beginning). With `q` each SUMMARY has `snippet`
  too: `{message: id of the question or answer, role, text: some 160 characters of it, marks:
  [[start, end], …] in code points of that text}`, or null where only the title holds it. An
  answer is found by its words some seconds after its end.
- GET /api/conversations/{id} → `{id, course, title, messages: [MESSAGE, branches included, in
  order of making], active_run: id or null, carried_from: null, or of what this conversation
  carries on {message: the answer up to which its summary goes, conversation: id, title, both null
  where it is gone}, carried_to: [{message: an answer of this one, conversation: id, title}, of what
  goes on with a summary of this one up to that answer, oldest first]}`. Has an `ETag`: with
  `If-None-Match` 304 where nothing changed.
- PATCH /api/conversations/{id} `{title: 1 to 200 characters}` → SUMMARY. The title is put on one
  line and rid of control characters; the place in the list stays.
- DELETE /api/conversations/{id} → 204; an answer that still runs in it is stopped first
- GET /api/conversations/{id}/export?format=jsonl|md → a download. jsonl (the default): the
  conversation, then each MESSAGE; md: to read, in the language of the page: each question, its
  answer, how that ended, and its sources with their places. The file is called after the title
  and the day of its last use.

What is renamed or deleted is told to all of the caller's sockets: `changed`, `deleted`
(`server.service.user_sessions`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from server.app.access import Access, Need, guarded, person_of
from server.app.api_replies import attachment, etag_reply, json_reply
from server.app.api_requests import json_body
from server.app.conversation_export import to_markdown
from server.app.conversation_fields import (
    list_place,
    num_listed,
    place_text,
    read_title,
    searched_text,
)
from server.app.pages import choose_language
from server.app.record_query import zone_of
from server.app.records import export_jsonl, message_json, time_json
from server.app.run_end import end_runs, leave_runs
from server.app.snippets import beginning, snippet
from server.app.titles import file_name
from server.service.auth import UserId
from server.service.errors import BadRequestError, NotFoundError
from server.service.runs import RunRegistry
from server.service.user_sessions import UserSessions
from server.store.analysis import QueryUnit, search_units
from server.store.conversations import ConversationHit, Conversations, ConversationSummary
from server.store.courses import Courses
from server.store.messages import Messages
from server.store.schema import Conversation, Course, Feedback, Message, MessagePassage


class _Title(msgspec.Struct, forbid_unknown_fields=True):
    title: str


class ConversationApi:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self,
        access: Access,
        runs: RunRegistry,
        courses: Courses,
        conversations: Conversations,
        messages: Messages,
        sessions: UserSessions,
    ) -> None:
        self._access = access
        self._runs = runs
        self._courses = courses
        self._conversations = conversations
        self._messages = messages
        self._sessions = sessions

    def routes(self) -> list[BaseRoute]:
        """The routes, ready for an application."""
        one = "/api/conversations/{conversation}"
        return [
            guarded("/api/conversations", self.list_conversations, ["GET"], Need.OWNER),
            guarded(one, self.conversation, ["GET"], Need.OWNER),
            guarded(one, self.rename, ["PATCH"], Need.OWNER),
            guarded(one, self.delete_conversation, ["DELETE"], Need.OWNER),
            guarded(f"{one}/export", self.export, ["GET"], Need.OWNER),
        ]

    async def list_conversations(self, request: Request) -> Response:
        """A page of the user's conversations, the latest used first."""
        user, query = person_of(request).user, request.query_params
        before, limit, text = list_place(query), num_listed(query), searched_text(query)
        course_id = None
        if named := query.get("course"):
            course_id = (await self._access.member(user, named)).course_id
        # One more than is shown tells whether there is a page after this one.
        most = limit + 1
        if text is None:
            summaries = await self._conversations.of_user(
                user, course_id, before=before, limit=most
            )
            shown = [summary_json(summary) for summary in summaries[:limit]]
        else:
            units = search_units(text)
            hits = await self._conversations.search(
                user, text, units, course_id=course_id, before=before, limit=most
            )
            summaries = [hit.summary for hit in hits]
            shown = [_hit_json(hit, units) for hit in hits[:limit]]
        has_more = len(summaries) > limit
        return json_reply(
            {
                "conversations": shown,
                "next": place_text(summaries[limit - 1].place) if has_more else None,
            }
        )

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
        before = {
            "id": conversation.id,
            "course": conversation.course_id,
            "title": conversation.title,
        }
        after = {
            "active_run": active.id if active else None,
            "carried_from": await self._source(conversation),
            "carried_to": [
                {"message": other.carried_from, "conversation": other.id, "title": other.title}
                for other in await self._conversations.carried_on(conversation)
            ],
        }

        def reply() -> Response:
            shown = _messages_json(messages, passages, feedback)
            return etag_reply(request, {**before, "messages": shown, **after})

        # A conversation may be long, and everybody's streams wait for the loop.
        return await asyncio.to_thread(reply)

    async def rename(self, request: Request) -> Response:
        """Gives a conversation another title."""
        user, conversation_id = person_of(request).user, request.path_params["conversation"]
        title = read_title((await json_body(request, _Title)).title)
        await self._conversations.rename(user, conversation_id, title)
        summary = await self._conversations.summary(user, conversation_id)
        if summary is None:
            raise NotFoundError("There is no such conversation.")
        self._sessions.changed(user, conversation=conversation_id, title=title)
        return json_reply(summary_json(summary))

    async def delete_conversation(self, request: Request) -> Response:
        """Deletes a conversation; an answer that still runs in it is stopped first."""
        user = person_of(request).user
        conversation = await self._own(user, request)
        running = partial(self._runs.active_in_any, (conversation.id,))
        await end_runs(running)
        await self._conversations.delete(user, conversation.id)
        leave_runs(running)
        self._sessions.deleted(user, conversation=conversation.id)
        return Response(status_code=204)

    async def export(self, request: Request) -> Response:
        """A conversation with all its messages, as a file."""
        user = person_of(request).user
        format = request.query_params.get("format") or "jsonl"
        if format not in ("jsonl", "md"):
            raise BadRequestError("format must be jsonl or md.", param="format")
        conversation = await self._own(user, request)
        course = await self._courses.get(conversation.course_id or "")
        messages = await self._messages.of_conversation(conversation.id)
        ids = [message.id for message in messages]
        passages = await self._messages.passages(ids)
        feedback = await self._messages.feedback(user, ids)
        zone = zone_of(course)
        day = conversation.updated_at.astimezone(zone).date()
        language = None if format == "jsonl" else choose_language(request)
        stored = (conversation, _title(course, language), messages, passages, feedback)

        def body() -> bytes:
            if language is None:
                return export_jsonl(*stored)
            return to_markdown(*stored, language=language, zone=zone).encode()

        media_type = "application/jsonl" if language is None else "text/markdown; charset=utf-8"
        return Response(
            await asyncio.to_thread(body),
            media_type=media_type,
            headers={
                "Cache-Control": "no-store",
                "Content-Disposition": attachment(file_name(conversation.title, day, format)),
                "X-Content-Type-Options": "nosniff",
            },
        )

    async def _source(self, conversation: Conversation) -> dict[str, Any] | None:
        if conversation.carried_from is None:
            return None
        source = await self._conversations.source_of(conversation)
        return {
            "message": conversation.carried_from,
            "conversation": source and source.id,
            "title": source and source.title,
        }

    async def _own(self, user: UserId, request: Request) -> Conversation:
        conversation = await self._conversations.get(user, request.path_params["conversation"])
        if conversation is None:
            raise NotFoundError("There is no such conversation.")
        return conversation


def summary_json(summary: ConversationSummary) -> dict[str, Any]:
    """SUMMARY."""
    return {
        "id": summary.conversation.id,
        "course": summary.conversation.course_id,
        "title": summary.conversation.title,
        "updated_at": time_json(summary.conversation.updated_at),
        "num_messages": summary.num_messages,
        "carried_from": summary.conversation.carried_from,
    }


def _messages_json(
    messages: Sequence[Message],
    passages: Mapping[str, Sequence[MessagePassage]],
    feedback: Mapping[str, Feedback],
) -> list[dict[str, Any]]:
    return [
        message_json(message, passages.get(message.id, ()), feedback.get(message.id))
        for message in messages
    ]


def _hit_json(hit: ConversationHit, units: list[QueryUnit]) -> dict[str, Any]:
    shown: dict[str, Any] | None = None
    for message in (hit.question, hit.answer):
        if message is None:
            continue
        if found := snippet(message.text, units):
            shown = {
                "message": message.id,
                "role": message.role,
                "text": found.text,
                "marks": found.marks,
            }
            break
    if shown is None and hit.question is not None:
        # Found by another word for the same, or in the other language.
        shown = {
            "message": hit.question.id,
            "role": hit.question.role,
            "text": beginning(hit.question.text),
            "marks": [],
        }
    return summary_json(hit.summary) | {"snippet": shown}


def _title(course: Course | None, language: str | None) -> str | None:
    if course is None:
        return None
    return course.title_zh if language == "zh" and course.title_zh else course.title
