"""One server for the tests that need nothing special of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.server.service.harness import Server, serving


@pytest.fixture
async def server(anyio_backend: object) -> AsyncIterator[Server]:
    """Answers by repeating the question."""
    async with serving() as running:
        yield running
