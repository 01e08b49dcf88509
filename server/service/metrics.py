"""Prometheus metrics of the service and gauges of the engine, in a registry of their own."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine.api import Engine, Finish, FinishType

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1)


class Metrics:
    """Counts how generations end. Owned by the event loop's thread."""

    def __init__(self, engine: Engine) -> None:
        self._registry = CollectorRegistry()
        self._finished = Counter(
            "lectern_generations_finished",
            "Generations by how they ended.",
            ["detail"],
            registry=self._registry,
        )
        self._completion_tokens = Counter(
            "lectern_completion_tokens", "Sampled tokens.", registry=self._registry
        )
        self._prompt_tokens = Counter(
            "lectern_prompt_tokens", "Prompt tokens of ended generations.", registry=self._registry
        )
        self._cached_tokens = Counter(
            "lectern_prompt_cached_tokens",
            "Prompt tokens that the prefix cache supplied.",
            registry=self._registry,
        )
        self._ttft = Histogram(
            "lectern_time_to_first_token_seconds",
            "From arrival to the first token.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._loop_lag = Histogram(
            "lectern_loop_lag_seconds",
            "How late the event loop runs its timers.",
            buckets=_LAG_SECONDS,
            registry=self._registry,
        )
        self._registry.register(_EngineCollector(engine))

    def left(self, reason: FinishType) -> None:
        """Counts a generation whose reader left before the terminal output was made."""
        self._finished.labels(reason.value).inc()

    def finished(self, finish: Finish) -> None:
        """Counts an end."""
        self._finished.labels(finish.detail.type.value).inc()
        self._prompt_tokens.inc(finish.usage.prompt_tokens)
        self._cached_tokens.inc(finish.usage.cached_tokens)
        self._completion_tokens.inc(finish.usage.completion_tokens)
        if finish.timing.ttft_s is not None:
            self._ttft.observe(finish.timing.ttft_s)

    def loop_lagged(self, lag_s: float) -> None:
        """Counts one look at the event loop's lag."""
        self._loop_lag.observe(lag_s)

    def render(self) -> bytes:
        """The text format that Prometheus scrapes."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    """Reads the engine's snapshot at the moment of the scrape."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        stats = self._engine.stats
        for name, help_text, gauge in (
            ("running_sequences", "Sequences that run.", stats.num_running),
            ("waiting_sequences", "Sequences that wait.", stats.num_waiting),
            ("kv_blocks_used", "KV cache blocks in use.", stats.used_blocks),
            ("kv_blocks_cached", "Blocks kept for reuse only.", stats.cached_blocks),
            ("kv_blocks_total", "All KV cache blocks.", stats.total_blocks),
            ("last_step_seconds", "Duration of the last engine step.", stats.last_step_s),
        ):
            yield GaugeMetricFamily(f"lectern_{name}", help_text, value=gauge)
        for name, help_text, count in (
            ("engine_steps", "Engine steps.", stats.num_steps),
            ("preemptions", "Sequences sent back to wait.", stats.num_preemptions),
            ("generated_tokens", "Tokens sampled by the engine.", stats.generated_tokens),
            ("drafted_tokens", "Guessed tokens that steps checked.", stats.drafted_tokens),
            ("accepted_tokens", "Guessed tokens that were right.", stats.accepted_tokens),
            ("prefix_lookup_tokens", "Tokens looked for in the cache.", stats.prefix_lookup_tokens),
            ("prefix_hit_tokens", "Of these, tokens that it had.", stats.prefix_hit_tokens),
            ("forks", "Sequences that took another one's prompt.", stats.num_forks),
        ):
            yield CounterMetricFamily(f"lectern_{name}", help_text, value=count)
