"""A client for `/v1/chat/completions` that notes when an answer's tokens come."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True, slots=True)
class Answer:
    """One streamed answer: when it was asked for, and when its first and last text came, in
    seconds on one clock (`time.perf_counter`)."""

    sent_s: float
    first_s: float
    last_s: float
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @property
    def ttft_s(self) -> float:
        """Time to the first token."""
        return self.first_s - self.sent_s

    @property
    def tokens_per_s(self) -> float:
        """How fast the tokens after the first came."""
        return (self.completion_tokens - 1) / (self.last_s - self.first_s)


async def ask(client: httpx.AsyncClient, body: dict[str, Any]) -> Answer:
    """Streams one answer to `body`, with usage. Raises httpx.HTTPError; ValueError when the
    answer has no text or no usage."""
    asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
    sent_s = time.perf_counter()
    async with client.stream("POST", "/v1/chat/completions", json=asked) as response:
        response.raise_for_status()
        first_s, last_s, usage = await _read(response.aiter_lines())
    details = usage.get("prompt_tokens_details") or {}
    return Answer(
        sent_s,
        first_s,
        last_s,
        usage["prompt_tokens"],
        details.get("cached_tokens", 0),
        usage["completion_tokens"],
    )


async def _read(lines: AsyncIterator[str]) -> tuple[float, float, dict[str, Any]]:
    first_s = last_s = None
    usage: dict[str, Any] = {}
    async for line in lines:
        if not line.startswith("data: {"):
            continue
        chunk = json.loads(line.removeprefix("data: "))
        usage = chunk.get("usage") or usage
        if chunk.get("choices") and chunk["choices"][0]["delta"].get("content"):
            last_s = time.perf_counter()
            first_s = first_s or last_s
    if first_s is None or last_s is None or not usage:
        raise ValueError("an answer came without text or without usage")
    return first_s, last_s, usage
