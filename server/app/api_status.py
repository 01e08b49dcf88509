"""`/api/status`, the list of courses and whole materials, as the page reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from engine.api import ModelInfo
from server.app.api_replies import json_reply, told
from server.service.errors import NotFoundError
from server.store.courses import Courses
from server.store.materials import Materials


class StatusApi:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self,
        courses: Courses,
        materials: Materials,
        *,
        state: Callable[[], str],
        model: Callable[[], ModelInfo | None],
    ) -> None:
        """`state` and `model` tell what `/api/status` says; `model` is None until it is loaded."""
        self._courses = courses
        self._materials = materials
        self._state = state
        self._model = model

    def routes(self) -> list[BaseRoute]:
        """The routes, ready for an application."""
        return [
            Route("/api/status", told(self.status), methods=["GET"]),
            Route("/api/courses", told(self.list_courses), methods=["GET"]),
            Route("/api/materials/{material}", told(self.material), methods=["GET"]),
        ]

    async def status(self, request: Request) -> Response:
        """The served model and whether it can answer."""
        return json_reply({"state": self._state(), "model": model_json(self._model())})

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
        return json_reply({"courses": courses})

    async def material(self, request: Request) -> Response:
        """One material, whole."""
        material = await self._materials.get(request.path_params["material"])
        if material is None:
            raise NotFoundError("There is no such material.")
        return json_reply(
            {
                "id": material.id,
                "course": material.course_id,
                "name": material.name,
                "title": material.title,
                "locator": material.name,
                "kind": material.kind,
                "format": material.format,
                "text": material.text,
            }
        )


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
