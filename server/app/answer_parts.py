"""Usage and timing of an answer that was made in several parts, each by a continuation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.api import Usage
from server.app.records import NO_TIMING as UNKNOWN_TIMING
from server.service.generation import Completion
from server.service.usage import timing_json, usage_json
from server.store.schema import Message

_COST_DIGITS = 12
"""Of an amount, as `PriceList` has them."""


def add_usage(earlier: dict[str, Any] | None, part: dict[str, Any]) -> dict[str, Any]:
    """The usage of an answer made in several parts: the prompt counts once (as the first part
    met it), generated tokens and costs add up; `parts` keeps each part's own usage, with the
    `max_tokens` that it was allowed."""
    if earlier is None:
        return part
    parts = [*earlier.get("parts", [_without_parts(earlier)]), part]
    completion_tokens = earlier["completion_tokens"] + part["completion_tokens"]
    whole = {
        **_without_parts(earlier),
        "completion_tokens": completion_tokens,
        "total_tokens": earlier["prompt_tokens"] + completion_tokens,
        "parts": parts,
    }
    for name in ("cost", "max_tokens", "completion_tokens_details"):
        whole.pop(name, None)
    thought = [_reasoning_tokens(one) for one in (earlier, part)]
    if any(thought):
        whole["completion_tokens_details"] = {"reasoning_tokens": sum(thought)}
    costs = [one["cost"] for one in (earlier, part) if "cost" in one]
    # Of parts that were paid for otherwise, or not at all, there is no sum.
    if len(costs) == 2 and costs[0]["currency"] == costs[1]["currency"]:
        amount = round(costs[0]["amount"] + costs[1]["amount"], _COST_DIGITS)
        whole["cost"] = {"amount": amount, "currency": costs[0]["currency"]}
    return whole


def usage_before(earlier: Message | None) -> dict[str, Any] | None:
    """What an answer used before it is continued. Of one whose process ended, which told no usage,
    the tokens that are stored; what of the prompt was in the cache nobody knows any more, and none
    is counted."""
    if earlier is None or earlier.usage is not None or not earlier.token_ids:
        return earlier.usage if earlier else None
    known = Usage(len(earlier.prompt_token_ids or ()), len(earlier.token_ids))
    return {**usage_json(known), "max_tokens": earlier.max_tokens}


def timing_before(earlier: Message | None) -> dict[str, Any] | None:
    """How long an answer took before it is continued; of one whose process ended nobody knows."""
    if earlier is None:
        return None
    return earlier.timing or (UNKNOWN_TIMING if earlier.token_ids else None)


def left_by_crash(answer: Message) -> dict[str, Any]:
    """What is known of an answer whose process ended while it was continued, as columns: the
    tokens of the continuation that were saved, and no time that went by unseen. Nothing of one
    whose first part was cut so: it has told no figures. `answer` is read with its tokens."""
    if not answer.earlier:
        return {}
    before = answer.earlier[-1]
    values: dict[str, Any] = {}
    num_before, usage = before["num_tokens"], before["usage"]
    num_tokens = len(answer.token_ids or ()) - num_before
    thought = len(answer.thinking or "") > (before["num_thinking"] or 0)
    if timing := before["timing"]:
        values["timing"] = add_timing(timing, UNKNOWN_TIMING)
        if thought:
            values["timing"].pop("thinking_ms", None)
    if usage is None or num_tokens <= 0:
        return values
    known = usage_json(Usage(len(answer.prompt_token_ids or ()) + num_before, num_tokens))
    usage = add_usage(usage, {**known, "max_tokens": None})
    if thought:
        usage.pop("completion_tokens_details", None)
    values |= {"usage": usage, "max_tokens": None}
    if answer.context is not None:
        values["context"] = {**answer.context, "window_used": usage["total_tokens"]}
    return values


def add_timing(earlier: dict[str, Any] | None, part: dict[str, Any]) -> dict[str, Any]:
    """The timing of an answer made in several parts: waiting is the first part's, `total_ms` and
    `thinking_ms` add up, the speed is the last part's; `parts` keeps each part's own timing. Of
    parts of which one's time is not known there is no sum."""
    if earlier is None:
        return part
    thought = [one["thinking_ms"] for one in (earlier, part) if one.get("thinking_ms") is not None]
    return {
        **_without_parts(earlier),
        **({"thinking_ms": round(sum(thought), 1)} if thought else {}),
        "total_ms": _sum(earlier.get("total_ms"), part.get("total_ms")),
        "tokens_per_s": part.get("tokens_per_s"),
        "parts": [*earlier.get("parts", [_without_parts(earlier)]), part],
    }


def part_timing(completion: Completion) -> dict[str, Any]:
    """How long a part of an answer took."""
    timing = timing_json(completion.finish.timing, completion.finish.usage)
    if completion.thinking_s is not None:
        timing["thinking_ms"] = round(completion.thinking_s * 1000, 1)
    return timing


def _sum(*times: float | None) -> float | None:
    known = [time for time in times if time is not None]
    return round(sum(known), 1) if len(known) == len(times) else None


def _reasoning_tokens(usage: Mapping[str, Any]) -> int:
    return int((usage.get("completion_tokens_details") or {}).get("reasoning_tokens", 0))


def _without_parts(whole: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in whole.items() if name != "parts"}
