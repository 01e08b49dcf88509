"""The application's JSON API: courses, conversations, materials, status. Used by the page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from engine.api import ModelInfo
from server.app.records import export_jsonl, message_json, time_json
from server.app.sessions import Sessions
from server.service.auth import UserId
from server.service.errors import ConversationBusyError, NotFoundError, ServiceError
from server.service.runs import Run, RunRegistry
from server.store.conversations import Conversations
from server.store.courses import Courses
from server.store.materials import Materials
from server.store.messages import Messages
from server.store.schema import Conversation

Endpoint = Callable[[Request], Awaitable[Response]]
_STOP_TIMEOUT_S = 5.0


class CourseApi:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self,
        sessions: Sessions,
        runs: RunRegistry,
        courses: Courses,
        materials: Materials,
        conversations: Conversations,
        messages: Messages,
        *,
        state: Callable[[], str],
        model: Callable[[], ModelInfo | None],
    ) -> None:
        """`state` and `model` tell what `/api/status` says; `model` is None until it is loaded."""
        self._sessions = sessions
        self._runs = runs
        self._courses = courses
        self._materials = materials
        self._conversations = conversations
        self._messages = messages
        self._state = state
        self._model = model

    def routes(self) -> list[BaseRoute]:
        """The routes, ready for an application."""
        one = "/api/conversations/{conversation}"
        return [
            Route("/api/status", _told(self.status), methods=["GET"]),
            Route("/api/courses", _told(self.list_courses), methods=["GET"]),
            Route("/api/materials/{material}", _told(self.material), methods=["GET"]),
            Route("/api/conversations", _told(self.list_conversations), methods=["GET"]),
            Route(one, _told(self.conversation), methods=["GET"]),
            Route(one, _told(self.delete_conversation), methods=["DELETE"]),
            Route(f"{one}/export", _told(self.export), methods=["GET"]),
        ]

    async def status(self, request: Request) -> Response:
        """The served model and whether it can answer."""
        return _json({"state": self._state(), "model": model_json(self._model())})

    async def list_courses(self, request: Request) -> Response:
        """All courses."""
        courses = [
            {
                "id": course.id,
                "slug": course.slug,
                "title": course.title,
                "title_zh": course.title_zh,
                "language": course.language,
                "num_materials": num_materials,
                "suggestions": course.suggestions,
            }
            for course, num_materials in await self._courses.all()
        ]
        return _json({"courses": courses})

    async def material(self, request: Request) -> Response:
        """One material, whole."""
        material = await self._materials.get(request.path_params["material"])
        if material is None:
            raise NotFoundError("There is no such material.")
        return _json(
            {
                "id": material.id,
                "course": material.course_id,
                "name": material.name,
                "title": material.title,
                "locator": material.name,
                "kind": material.kind,
                "text": material.text,
            }
        )

    async def list_conversations(self, request: Request) -> Response:
        """The user's conversations, the latest used first; of one course with `?course=`."""
        course_id = None
        if named := request.query_params.get("course"):
            course = await self._courses.get(named)
            if course is None:
                raise NotFoundError("There is no such course.", param="course")
            course_id = course.id
        summaries = await self._conversations.of_user(self._sessions.user(request), course_id)
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
        return _json({"conversations": conversations})

    async def conversation(self, request: Request) -> Response:
        """One conversation with all its messages, branches included, in order of making."""
        conversation = await self._own(self._sessions.user(request), request)
        # Looked up before the messages: a run that ends in between is then found stored.
        active = self._runs.active_in(conversation.id)
        messages = await self._messages.of_conversation(conversation.id)
        passages = await self._messages.passages([message.id for message in messages])
        return _json(
            {
                "id": conversation.id,
                "course": conversation.course_id,
                "title": conversation.title,
                "messages": [
                    message_json(message, passages.get(message.id, ())) for message in messages
                ],
                "active_run": active.id if active else None,
            }
        )

    async def delete_conversation(self, request: Request) -> Response:
        """Deletes a conversation; an answer that still runs in it is stopped first."""
        user = self._sessions.user(request)
        conversation = await self._own(user, request)
        active = self._runs.active_in(conversation.id)
        if active is not None:
            await _stop(active)
        await self._conversations.delete(user, conversation.id)
        return Response(status_code=204)

    async def export(self, request: Request) -> Response:
        """A conversation as JSON lines: itself, then each message with how it ended."""
        conversation = await self._own(self._sessions.user(request), request)
        course = await self._courses.get(conversation.course_id or "")
        messages = await self._messages.of_conversation(conversation.id)
        passages = await self._messages.passages([message.id for message in messages])
        return Response(
            export_jsonl(conversation, course.title if course else None, messages, passages),
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


def model_json(model: ModelInfo | None) -> dict[str, Any] | None:
    """The served model, as the page shows it."""
    if model is None:
        return None
    return {
        "name": model.name,
        "is_fallback": model.is_fallback,
        "max_model_len": model.max_model_len,
        "window": model.window,
        "architecture": model.architecture,
        "dtype": model.dtype,
        "device": model.device,
        "kv_cache_tokens": model.kv_cache_tokens,
    }


async def _stop(run: Run) -> None:
    run.cancel()
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            async for _ in run.events(run.last_seq):
                pass
    except TimeoutError:
        raise ConversationBusyError("This conversation is still answering.") from None


def _told(endpoint: Endpoint) -> Endpoint:
    """The endpoint with its ServiceErrors as JSON replies."""

    @wraps(endpoint)
    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ServiceError as error:
            return Response(
                error.openai_body(),
                status_code=error.http_status,
                media_type="application/json",
                headers={"Cache-Control": "no-store"},
            )

    return guarded


def _json(value: Any) -> Response:
    return Response(
        msgspec.json.encode(value),
        media_type="application/json",
        headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
    )
