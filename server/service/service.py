"""`Service`: the service layer put together over one engine, with its start and its end."""

from __future__ import annotations

import asyncio
import time

from engine.api import Engine
from server.service import request_log
from server.service.admission import Admission
from server.service.auth import Auth
from server.service.completions import CompletionRoutes
from server.service.conversation import ConversationApp
from server.service.exchange import Exchange
from server.service.fan_out import FanOut
from server.service.generation import Generation
from server.service.health import HealthRoutes
from server.service.key_watch import KeyWatch
from server.service.likelihood import Likelihood
from server.service.limits import ServiceLimits
from server.service.loop_lag import LoopLag
from server.service.metrics import Metrics
from server.service.model_list import ModelRoutes
from server.service.openapi import OpenAPIRoutes
from server.service.origin import OriginPolicy
from server.service.prices import PriceList
from server.service.responses import ResponseRoutes
from server.service.run import Run
from server.service.run_events import RunEventRoutes
from server.service.runs import RunRegistry
from server.service.start_figures import StartFigures, resident_bytes
from server.service.tokenize import TokenizeRoutes
from server.service.tracing import Tracing
from server.service.ws import WebSocketRoute
from server.service.ws_context import SocketContext

_ANY_HOST = OriginPolicy()
_FAREWELL_S = 2.0
"""How long sockets may take to hear that the server goes away."""


class Service:
    """Owned by the event loop's thread. Build it, build the application over `generation` and
    `runs`, then `plug_in` the application."""

    def __init__(
        self,
        engine: Engine,
        auth: Auth,
        limits: ServiceLimits | None = None,
        *,
        origins: OriginPolicy = _ANY_HOST,
        tracing: Tracing | None = None,
        prices: PriceList | None = None,
        splits_reasoning: bool = True,
    ) -> None:
        self.engine = engine
        self.auth = auth
        self.limits = limits or ServiceLimits()
        self.origins = origins
        self._tracing = tracing
        self.fan_out = FanOut(tick_s=min(0.25, self.limits.heartbeat_s / 4))
        self.admission = Admission(engine, self.limits)
        self.metrics = Metrics(engine)
        self.runs = RunRegistry(self.limits, self.admission.enter_run, self._run_ended)
        self.generation = Generation(
            engine,
            self.limits,
            self.admission,
            self.metrics,
            prices,
            self.fan_out,
            splits_reasoning=splits_reasoning,
        )
        self.likelihood = Likelihood(engine, self.generation.prompts, self.admission)
        self.completions = CompletionRoutes(self.generation, self.admission, auth, self.limits)
        self.responses = ResponseRoutes(self.generation, self.admission, auth, self.limits)
        self.tokenize = TokenizeRoutes(self.generation, self.admission, self.limits)
        self.models = ModelRoutes(self.generation, self.admission)
        self.openapi = OpenAPIRoutes(self.generation, self.admission, self.limits)
        self.health = HealthRoutes(engine, self.admission, self.metrics)
        self.run_events = RunEventRoutes(self.runs, auth, self.limits)
        self._context = SocketContext(auth, self.generation, self.runs, self.limits, self.fan_out)
        self.user_sessions = self._context.user_sessions
        self.sockets = WebSocketRoute(self._context)
        self._context.origins = origins
        self._context.on_refused = self.metrics.refused
        self._loop_lag = LoopLag(self.metrics.loop_lagged)
        engine.watch_steps(self.metrics.step_times.observe)
        self._key_watch = KeyWatch(auth.keys, self.sockets.close_invalid)
        self.metrics.watch(
            connections=lambda: self.sockets.num_sessions, runs=lambda: self.runs.num_running
        )

    def exchange_ended(self, exchange: Exchange) -> None:
        """Counts, logs and traces an HTTP request, of whatever part of the site."""
        self.metrics.exchange_ended(exchange)
        request_log.log_exchange(exchange)
        if self._tracing is not None:
            self._tracing.exchange_ended(exchange)

    def _run_ended(self, run: Run) -> None:
        self.metrics.run_ended(run)
        request_log.log_run(run, self.auth.key_name(run.owner))
        if self._tracing is not None:
            self._tracing.run_ended(run)

    def plug_in(self, app: ConversationApp) -> None:
        """Gives the WebSocket the application that answers what is asked within a course."""
        self._context.app = app

    async def start(self) -> None:
        """Starts the engine, and what watches the loop. Raises ModelLoadError."""
        began_s = time.monotonic()
        await self.engine.start()
        self.metrics.started(StartFigures(time.monotonic() - began_s, resident_bytes()))
        self._loop_lag.start()
        self._key_watch.start()

    async def shutdown(self, grace_s: float | None = None) -> None:
        """Refuses new work, lets answers end for `grace_s` seconds (default
        `drain_timeout_s`), ends the rest as `shutdown`, stops the engine, then closes the
        sockets with 1001. Takes a few seconds more than `grace_s`, whatever a run waits for.
        Idempotent."""
        grace_s = self.limits.drain_timeout_s if grace_s is None else grace_s
        loop = asyncio.get_running_loop()
        grace_until = loop.time() + grace_s
        self.admission.drain()
        # The engine takes no new requests once it shuts down, but what was accepted may still be
        # tokenized, and a run may be looking for its passages.
        await asyncio.gather(self.runs.drain(grace_s), self.admission.prepared(grace_s))
        left_s = max(0.0, grace_until - loop.time())
        await asyncio.gather(self.runs.shutdown(0), self.engine.shutdown(left_s))
        await self.sockets.shutdown(_FAREWELL_S)
        self._loop_lag.stop()
        self._key_watch.stop()
        self.generation.close()
