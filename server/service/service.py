"""`Service`: the service layer put together over one engine, with its start and its end."""

from __future__ import annotations

import asyncio

from engine.api import Engine
from server.service.admission import Admission
from server.service.auth import Auth
from server.service.completions import CompletionRoutes
from server.service.conversation import ConversationApp
from server.service.exchange import Exchange
from server.service.generation import Generation
from server.service.health import HealthRoutes
from server.service.limits import ServiceLimits
from server.service.loop_lag import LoopLag
from server.service.metrics import Metrics
from server.service.model_list import ModelRoutes
from server.service.run_events import RunEventRoutes
from server.service.runs import RunRegistry
from server.service.ws import WebSocketRoute
from server.service.ws_context import SocketContext

_FAREWELL_S = 2.0
"""How long sockets may take to hear that the server goes away."""


class Service:
    """Owned by the event loop's thread. Build it, build the application over `generation` and
    `runs`, then `plug_in` the application."""

    def __init__(self, engine: Engine, auth: Auth, limits: ServiceLimits | None = None) -> None:
        self.engine = engine
        self.auth = auth
        self.limits = limits or ServiceLimits()
        self.admission = Admission(engine)
        self.metrics = Metrics(engine)
        self.runs = RunRegistry(self.limits, self.admission.enter_run)
        self.generation = Generation(engine, self.limits, self.admission, self.metrics)
        self.completions = CompletionRoutes(self.generation, self.admission, auth, self.limits)
        self.models = ModelRoutes(self.generation, self.admission)
        self.health = HealthRoutes(engine, self.admission, self.metrics)
        self.run_events = RunEventRoutes(self.runs, auth, self.limits)
        self._context = SocketContext(auth, self.generation, self.runs, self.limits)
        self.sockets = WebSocketRoute(self._context)
        self._loop_lag = LoopLag(self.metrics.loop_lagged)

    def exchange_ended(self, exchange: Exchange) -> None:
        """Counts and logs an HTTP request of the service's own routes."""

    def plug_in(self, app: ConversationApp) -> None:
        """Gives the WebSocket the application that answers ask, continue, regenerate, edit and
        feedback."""
        self._context.app = app

    async def start(self) -> None:
        """Starts the engine, and what watches the loop. Raises ModelLoadError."""
        await self.engine.start()
        self._loop_lag.start()

    async def shutdown(self, grace_s: float | None = None) -> None:
        """Refuses new work, lets answers end for `grace_s` seconds (default
        `drain_timeout_s`), ends the rest as `shutdown`, stops the engine, then closes the
        sockets with 1001. Takes a few seconds more than `grace_s`, whatever a run waits for.
        Idempotent."""
        grace_s = self.limits.drain_timeout_s if grace_s is None else grace_s
        loop = asyncio.get_running_loop()
        grace_until = loop.time() + grace_s
        self.admission.drain()
        # The engine takes no new requests once it shuts down, but a run that was accepted may
        # still be looking for its passages.
        await self.runs.drain(grace_s)
        left_s = max(0.0, grace_until - loop.time())
        await asyncio.gather(self.runs.shutdown(0), self.engine.shutdown(left_s))
        await self.sockets.shutdown(_FAREWELL_S)
        self._loop_lag.stop()
        self.generation.close()
