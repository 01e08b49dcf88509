"""Usage and timing as clients see them: one shape for JSON, SSE and WebSocket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.api import Timing, Usage
from server.service.prices import PriceList


def usage_json(
    usage: Usage, *, prices: PriceList | None = None, reasoning_tokens: int | None = None
) -> dict[str, Any]:
    """OpenAI's usage object, with the cached part of the prompt in both common forms; with
    `prices` it tells the cost, our extension. `reasoning_tokens`: those of the completion tokens
    that are not the answer; None: not told."""
    told: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "prompt_cache_hit_tokens": usage.cached_tokens,
        "prompt_cache_miss_tokens": usage.prompt_tokens - usage.cached_tokens,
    }
    if reasoning_tokens is not None:
        told["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens}
    if prices is not None:
        told["cost"] = prices.cost_json(usage)
    return told


def total_usage(choices: Sequence[Usage], num_choices: int) -> Usage:
    """The sum over choices that stand prompt by prompt, `num_choices` to each: every prompt
    counts once (with what its first choice found in the cache), every answer counts."""
    first = choices[::num_choices]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in first),
        completion_tokens=sum(usage.completion_tokens for usage in choices),
        cached_tokens=sum(usage.cached_tokens for usage in first),
    )


def timing_json(timing: Timing, usage: Usage) -> dict[str, Any]:
    """Milliseconds; `tokens_per_s` is the speed after the first token, None for a single one."""
    speed = None
    if timing.ttft_s is not None and usage.completion_tokens > 1:
        decode_s = timing.total_s - timing.ttft_s
        speed = round((usage.completion_tokens - 1) / decode_s, 2) if decode_s > 0 else None
    return {
        "queue_ms": _ms(timing.queue_s),
        "ttft_ms": _ms(timing.ttft_s),
        "total_ms": _ms(timing.total_s),
        "tokens_per_s": speed,
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
