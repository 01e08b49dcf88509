"""`/api/status`, as the page reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from engine.api import ModelInfo
from server.app.access import Need, guarded
from server.app.api_replies import json_reply


class StatusApi:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self,
        *,
        state: Callable[[], str],
        model: Callable[[], ModelInfo | None],
    ) -> None:
        """`state` and `model` tell what `/api/status` says; `model` is None until it is loaded."""
        self._state = state
        self._model = model

    def routes(self) -> list[BaseRoute]:
        """The routes, ready for an application."""
        return [
            guarded("/api/status", self.status, ["GET"], Need.OPEN),
        ]

    async def status(self, request: Request) -> Response:
        """The served model and whether it can answer."""
        return json_reply({"state": self._state(), "model": model_json(self._model())})


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
