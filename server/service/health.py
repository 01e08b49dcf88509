"""`/health`, `/ready` and `/metrics`: what a supervisor, a balancer and Prometheus look at."""

from __future__ import annotations

import asyncio

import msgspec

from engine.api import Engine, EngineState
from server.service.admission import Admission
from server.service.exchange import Exchange
from server.service.metrics import CONTENT_TYPE, Metrics


class HealthRoutes:
    """Owned by the event loop's thread."""

    def __init__(self, engine: Engine, admission: Admission, metrics: Metrics) -> None:
        self._engine = engine
        self._admission = admission
        self._metrics = metrics

    async def health(self, exchange: Exchange) -> None:
        """200 as long as restarting the process would not help."""
        is_alive = self._engine.state is not EngineState.DEAD
        told = {"status": "ok" if is_alive else "engine failed"}
        await exchange.reply(msgspec.json.encode(told), status=200 if is_alive else 503)

    async def ready(self, exchange: Exchange) -> None:
        """200 while new work would be taken."""
        is_ready = self._admission.is_ready
        told = {"ready": is_ready, "state": self._admission.state}
        await exchange.reply(msgspec.json.encode(told), status=200 if is_ready else 503)

    async def metrics(self, exchange: Exchange) -> None:
        """Made in a thread: hundreds of lines are milliseconds that streams would wait for."""
        text = await asyncio.to_thread(self._metrics.render)
        await exchange.reply(text, content_type=CONTENT_TYPE)
