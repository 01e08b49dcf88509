"""What the engine is asked, for tests that look at what the service made of a request."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest

from engine.api import GenerationRequest, OutputStream
from tests.server.service.harness import Server


def recorded_requests(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[GenerationRequest]:
    """What the engine is given from now on."""
    found: list[GenerationRequest] = []
    generate = server.engine.generate

    def record(request: GenerationRequest) -> AbstractAsyncContextManager[OutputStream]:
        found.append(request)
        return generate(request)

    monkeypatch.setattr(server.engine, "generate", record)
    return found
