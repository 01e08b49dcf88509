"""`GET /v1/models` and `/v1/models/{id}`: the one served model."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import unquote

import msgspec

from server.service.admission import Admission
from server.service.errors import ModelNotFoundError
from server.service.exchange import Exchange
from server.service.generation import Generation

PREFIX = "/v1/models/"


class ModelRoutes:
    """Owned by the event loop's thread."""

    def __init__(self, generation: Generation, admission: Admission) -> None:
        self._generation = generation
        self._admission = admission
        self._created = int(time.time())

    async def list(self, exchange: Exchange) -> None:
        self._check(exchange)
        told = {"object": "list", "data": [self._model()]}
        await exchange.reply(msgspec.json.encode(told))

    async def one(self, exchange: Exchange) -> None:
        """A name may hold slashes."""
        self._check(exchange)
        name, served = unquote(exchange.path.removeprefix(PREFIX)), self._generation.model.name
        if name != served:
            raise ModelNotFoundError(name, served)
        await exchange.reply(msgspec.json.encode(self._model()))

    def _check(self, exchange: Exchange) -> None:
        assert exchange.caller is not None
        self._admission.check()

    def _model(self) -> dict[str, Any]:
        model = self._generation.model
        return {
            "id": model.name,
            "object": "model",
            "created": self._created,
            "owned_by": "lectern",
            # Two names that clients look for.
            "max_model_len": model.window,
            "context_length": model.window,
        }
