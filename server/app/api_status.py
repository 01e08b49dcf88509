"""What the server is, for the page, and how it is doing, for teachers.

- GET /api/status (anybody) → `{state, model: MODEL or null until it is loaded}`
- GET /api/server (teachers) → `{state, model, version, uptime_s, answering: answers that run or
  wait, in courses, running and waiting: what the engine does for everybody, connections,
  tokens_per_s: since the last time that anybody looked, null the first time, generated_tokens,
  prompt_tokens, cached_tokens: since the start, kv_used: the share of the cache from 0 to 1, data:
  {used_bytes, free_bytes}: of the data folder, at most a minute old}`

MODEL is `{name, is_fallback, max_model_len, window, architecture, dtype, device,
kv_cache_tokens}`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from engine.api import ModelInfo
from server.app.access import Need, guarded
from server.app.api_replies import json_reply
from server.app.server_state import ServerState


class StatusApi:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self,
        *,
        state: Callable[[], str],
        model: Callable[[], ModelInfo | None],
        server: ServerState,
    ) -> None:
        """`state` and `model` tell what `/api/status` says; `model` is None until it is loaded."""
        self._state = state
        self._model = model
        self._server = server

    def routes(self) -> list[BaseRoute]:
        """The routes, ready for an application."""
        return [
            guarded("/api/status", self.status, ["GET"], Need.OPEN),
            guarded("/api/server", self.server, ["GET"], Need.TEACHER),
        ]

    async def status(self, request: Request) -> Response:
        """The served model and whether it can answer."""
        return json_reply({"state": self._state(), "model": model_json(self._model())})

    async def server(self, request: Request) -> Response:
        """How the server is doing."""
        told = {"state": self._state(), "model": model_json(self._model())}
        return json_reply(told | await self._server.told())


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
