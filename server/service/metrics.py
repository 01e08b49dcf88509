"""Prometheus metrics of the service, in a registry of their own.

No label has a value that a client chooses: routes are patterns, codes and details come from closed
lists. So the number of series is bounded."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from engine.api import Engine, Finish
from server.service.engine_metrics import EngineCollector, StepTimes
from server.service.exchange import CLIENT_LEFT, Exchange
from server.service.loop_lag import WorstLag
from server.service.run import Run
from server.service.start_figures import StartFigures
from server.version import VERSION

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1)


class Metrics:
    """Written by the event loop's thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._registry = registry = CollectorRegistry()
        self.step_times = StepTimes()
        """For who hears of the engine's steps."""
        self._worst_lag = WorstLag()
        self._requests = Counter(
            "lectern_http_requests",
            "HTTP replies by route and status; 499: the client had left before one.",
            ["route", "status"],
            registry=registry,
        )
        self._request_seconds = Histogram(
            "lectern_http_request_seconds",
            "From a request's arrival to the end of its reply.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._refusals = Counter(
            "lectern_refusals",
            "Requests and messages that were answered by an error, by its code.",
            ["code"],
            registry=registry,
        )
        self._finished = Counter(
            "lectern_generations_finished",
            "Generations by how they ended.",
            ["detail"],
            registry=registry,
        )
        self._completion_tokens = Counter(
            "lectern_completion_tokens", "Sampled tokens.", registry=registry
        )
        self._prompt_tokens = Counter(
            "lectern_prompt_tokens", "Prompt tokens of ended generations.", registry=registry
        )
        self._cached_tokens = Counter(
            "lectern_prompt_cached_tokens",
            "Prompt tokens that the prefix cache supplied.",
            registry=registry,
        )
        self._cost = Counter(
            "lectern_cost", "What ended generations cost, by the prices given.", registry=registry
        )
        self._ttft = Histogram(
            "lectern_time_to_first_token_seconds",
            "From arrival to the first token.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._queue = Histogram(
            "lectern_queue_seconds",
            "From arrival to the first step.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._loop_lag = Histogram(
            "lectern_loop_lag_seconds",
            "How late the event loop runs its timers.",
            buckets=_LAG_SECONDS,
            registry=registry,
        )
        self._gauge("loop_lag_max_seconds", "The worst of the last 30 to 60 s.").set_function(
            lambda: self._worst_lag.seconds
        )
        registry.register(EngineCollector(engine))
        registry.register(self.step_times)
        ProcessCollector(registry=registry)

    def watch(self, *, connections: Callable[[], int], runs: Callable[[], int]) -> None:
        """What is counted at the moment of a scrape: open WebSockets, runs that have not ended.
        Once."""
        self._gauge("connections", "Open WebSockets.").set_function(connections)
        self._gauge("runs", "Runs that have not ended.").set_function(runs)

    def started(self, figures: StartFigures) -> None:
        """Notes what the start took, and what runs. Once."""
        model = self._engine.model
        for name, help_text, value in (
            ("start_load_seconds", "How long the model took to load.", figures.load_s),
            ("start_resident_bytes", "Resident memory after the start.", figures.resident_bytes),
            ("start_gpu_bytes", "GPU memory after the start.", model.gpu_bytes),
            ("kv_cache_bytes", "What the KV cache takes; 0: not known.", model.kv_cache_bytes),
            ("kv_cache_tokens", "Tokens that the KV cache holds.", model.kv_cache_tokens),
        ):
            self._gauge(name, help_text).set(value)
        labels = {
            "version": VERSION,
            "python": platform.python_version(),
            "model": model.name,
            "architecture": model.architecture,
            "dtype": model.dtype,
            "device": model.device,
        }
        info = Gauge("lectern_build_info", "What runs.", labels, registry=self._registry)
        info.labels(**labels).set(1)

    def exchange_ended(self, exchange: Exchange) -> None:
        """Counts one HTTP request, and the error that it got instead of an answer."""
        status = exchange.status or CLIENT_LEFT
        self._requests.labels(exchange.route, str(status)).inc()
        seconds = time.monotonic() - exchange.arrived_s
        self._request_seconds.labels(exchange.route).observe(seconds)
        if status >= 400 and exchange.detail is not None:
            self.refused(exchange.detail)

    def run_ended(self, run: Run) -> None:
        """Counts a run that ended by an error."""
        if run.ending is not None and "code" in run.ending:
            self.refused(run.ending["code"])

    def refused(self, code: str) -> None:
        """Counts an error that a client was told, by its `ServiceError.code`."""
        self._refusals.labels(code).inc()

    def finished(self, finish: Finish, cost: float | None = None) -> None:
        """Counts an end; `cost` in the currency of the prices, None without prices."""
        self._finished.labels(finish.detail.type.value).inc()
        self._prompt_tokens.inc(finish.usage.prompt_tokens)
        self._cached_tokens.inc(finish.usage.cached_tokens)
        self._completion_tokens.inc(finish.usage.completion_tokens)
        if cost is not None:
            self._cost.inc(cost)
        if finish.timing.queue_s is not None:
            self._queue.observe(finish.timing.queue_s)
        if finish.timing.ttft_s is not None:
            self._ttft.observe(finish.timing.ttft_s)

    def loop_lagged(self, lag_s: float) -> None:
        """Counts one look at the event loop's lag."""
        self._loop_lag.observe(lag_s)
        self._worst_lag.observe(lag_s)

    def render(self) -> bytes:
        """The text format that Prometheus scrapes. From any thread."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, documentation: str) -> Gauge:
        return Gauge(f"lectern_{name}", documentation, registry=self._registry)
