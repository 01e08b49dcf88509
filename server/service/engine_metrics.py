"""What Prometheus is told about the engine: its snapshot, and the times of its steps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine.api import Engine

# Finest where a GPU's steps lie.
_STEP_SECONDS = (
    *(0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.012, 0.015, 0.02, 0.03, 0.05),
    *(0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 10),
)


class WeightedHistogram:
    """Counts values into buckets, many equal ones at once: a step that gives 256 answers a token
    each is one call. One thread observes; another may read, and then misses a moment at most."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, weight: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += weight
        self._sum += value * weight

    def family(self, name: str, documentation: str) -> Metric:
        """As Prometheus has it: each bucket counts what is not above its bound."""
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(name, documentation, buckets=buckets, sum_value=self._sum)


class StepTimes(Collector):
    """How long the engine's steps took, and with them the time between two tokens of an answer.
    Written by the event loop's thread."""

    def __init__(self) -> None:
        self._steps = WeightedHistogram(_STEP_SECONDS)
        self._between_tokens = WeightedHistogram(_STEP_SECONDS)

    def observe(self, step_s: float, num_answers: int) -> None:
        """One step of `step_s` seconds that brought `num_answers` answers on: what an answer waits
        for its next token is the step that makes it."""
        self._steps.observe(step_s)
        if num_answers:
            self._between_tokens.observe(step_s, num_answers)

    def collect(self) -> Iterable[Metric]:
        yield self._steps.family("lectern_step_seconds", "How long the engine's steps took.")
        yield self._between_tokens.family(
            "lectern_inter_token_seconds",
            "Time between two tokens of an answer, counted for every answer of a step.",
        )


class EngineCollector(Collector):
    """Reads the engine's snapshot at the moment of the scrape."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        stats = self._engine.stats
        looked_up = stats.prefix_lookup_tokens
        hit_ratio = stats.prefix_hit_tokens / looked_up if looked_up else 0.0
        usage = stats.used_blocks / stats.total_blocks if stats.total_blocks else 0.0
        for name, help_text, gauge in (
            ("running_sequences", "Sequences that run.", stats.num_running),
            ("waiting_sequences", "Sequences that wait.", stats.num_waiting),
            ("kv_blocks_used", "KV cache blocks in use.", stats.used_blocks),
            ("kv_blocks_cached", "Blocks kept for reuse only.", stats.cached_blocks),
            ("kv_blocks_total", "All KV cache blocks.", stats.total_blocks),
            ("kv_usage_ratio", "Share of the KV cache in use, 0 to 1.", usage),
            ("prefix_hit_ratio", "Share of looked-up tokens that were cached.", hit_ratio),
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
