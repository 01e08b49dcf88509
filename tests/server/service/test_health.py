"""What a supervisor and a balancer are told over a server's life."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from engine.api import Script
from server.service.auth import Auth
from tests.server.service.harness import SECRET, Server, eventually, serving

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


async def _told(server: Server) -> dict[str, tuple[int, dict[str, object]]]:
    replies = {path: await server.http.get(path) for path in ("/health", "/ready")}
    return {path: (reply.status_code, reply.json()) for path, reply in replies.items()}


async def test_while_it_answers() -> None:
    """Who asks needs no key: a balancer has none."""
    async with serving(auth=Auth(SECRET, ["sk"])) as server:
        assert await _told(server) == {
            "/health": (200, {"status": "ok"}),
            "/ready": (200, {"ready": True, "state": "ready"}),
        }
        head = await server.http.head("/health")
        assert (head.status_code, head.content) == (200, b"")


async def test_it_is_not_ready_as_soon_as_it_drains() -> None:
    """A balancer must look elsewhere while running answers still end."""
    async with serving(Script(answer=lambda _: "x" * 400, token_s=0.01)) as server:
        answer = asyncio.ensure_future(server.stream("hi"))
        await eventually(lambda: server.engine.stats.num_running == 1)
        ending = asyncio.ensure_future(server.service.shutdown(20))
        await asyncio.sleep(0)
        assert await _told(server) == {
            "/health": (200, {"status": "ok"}),
            "/ready": (503, {"ready": False, "state": "draining"}),
        }
        assert (await server.chat("new")).status_code == 503
        assert (await answer)[-1]["choices"][0]["finish_reason"] == "stop"
        await ending


async def test_a_dead_engine_is_not_healthy() -> None:
    def fail(_: object) -> NoReturn:
        raise SystemError("a script that breaks the engine's thread")

    async with serving(Script(answer=fail)) as server:
        assert (await server.chat("hi")).status_code == 500
        assert await _told(server) == {
            "/health": (503, {"status": "engine failed"}),
            "/ready": (503, {"ready": False, "state": "dead"}),
        }
        refused = await server.chat("hi")
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "model_unavailable"
        assert (await server.http.get("/metrics")).status_code == 200
