"""`GET /openapi.json`: the service's own description, in OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

import msgspec

from server.service.admission import Admission
from server.service.exchange import Exchange
from server.service.generation import Generation
from server.service.limits import ServiceLimits
from server.service.openapi_paths import PATHS, RESPONSES
from server.service.openapi_schemas import components

_DESCRIPTION = (
    'OpenAI\'s API over one model. Errors are `{"error": {"message", "type", "param", '
    '"code"}}`, also of a request for a stream. Unknown fields of a body are ignored and named in '
    "`X-Lectern-Ignored`. Every reply bears `X-Request-Id`: the request's own, or a new one. Runs "
    "are asked over the WebSocket `/ws/v1` (subprotocol `lectern.v1`)."
)


class OpenAPIRoutes:
    """Owned by the event loop's thread."""

    def __init__(self, generation: Generation, admission: Admission, limits: ServiceLimits) -> None:
        self._generation = generation
        self._admission = admission
        self._limits = limits
        self._document: bytes | None = None

    async def document(self, exchange: Exchange) -> None:
        if self._document is None:
            # The served model's name is in it.
            self._admission.check_engine()
            model = self._generation.model
            told = describe(self._limits, model.name, model.vocab_size)
            self._document = msgspec.json.encode(told)
        await exchange.reply(self._document)


def describe(limits: ServiceLimits, model: str, vocab_size: int) -> dict[str, Any]:
    """The document of a server with these limits that serves `model`."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lectern", "version": "1", "description": _DESCRIPTION},
        "paths": PATHS,
        "components": {
            "schemas": components(limits, model, vocab_size),
            "responses": RESPONSES,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        # A server without keys asks for none.
        "security": [{}, {"key": []}],
    }
