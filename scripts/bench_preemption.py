"""Measures what a KV cache that is too small costs: the same requests with room for all of them and
with room for a quarter, in turns.

    python -m scripts.bench_preemption [MODEL.gguf]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from engine.api import (
    EngineConfig,
    GenerationRequest,
    RequestId,
    SamplingParams,
    create_engine,
)
from server.config import ServerConfig

NUM_REQUESTS = 32
SHARE = 0.25


class Outcome(NamedTuple):
    tokens_per_s: float
    num_preemptions: int


def make_requests(seed: int = 1) -> list[GenerationRequest]:
    """Prompts of 80 to 250 random tokens, answers of 100 to 300, EOS ignored."""
    draw = random.Random(seed)
    return [
        GenerationRequest(
            RequestId(str(index)),
            tuple(draw.randrange(100, 40_000) for _ in range(draw.randrange(80, 250))),
            SamplingParams(temperature=0.0, max_tokens=draw.randrange(100, 300), ignore_eos=True),
        )
        for index in range(NUM_REQUESTS)
    ]


def demand(requests: Sequence[GenerationRequest]) -> int:
    """Tokens that all requests together have at their ends."""
    return sum(
        len(request.prompt_token_ids) + (request.params.max_tokens or 0) for request in requests
    )


async def measure(model: Path, kv_cache_tokens: int) -> Outcome:
    """All requests at once on a fresh engine."""
    requests = make_requests()
    engine = create_engine(
        EngineConfig(
            model=model, max_model_len=1024, kv_cache_tokens=kv_cache_tokens, speculation="off"
        )
    )
    await engine.start()

    async def one(request: GenerationRequest) -> int:
        async with engine.generate(request) as stream:
            async for _ in stream:
                pass
            assert stream.finish is not None
            return stream.finish.usage.completion_tokens

    started_s = time.perf_counter()
    counts = await asyncio.gather(*map(one, requests))
    seconds = time.perf_counter() - started_s
    num_preemptions = engine.stats.num_preemptions
    await engine.shutdown(1.0)
    return Outcome(sum(counts) / seconds, num_preemptions)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    default = ServerConfig().models_dir / "smollm2-135m-instruct.gguf"
    parser.add_argument("model", type=Path, nargs="?", default=default)
    parser.add_argument("--repeat", type=int, default=2)
    given = parser.parse_args()
    needed = demand(make_requests())
    ratios = []
    for _ in range(given.repeat):
        roomy = await measure(given.model, needed + 1024)
        small = await measure(given.model, int(needed * SHARE))
        ratios.append(small.tokens_per_s / roomy.tokens_per_s)
        print(
            f"room for all: {roomy.tokens_per_s:.0f} tok/s; for {SHARE:.0%}: "
            f"{small.tokens_per_s:.0f} tok/s, {small.num_preemptions} preemptions; "
            f"{ratios[-1]:.2f}",
            flush=True,
        )
    print(f"kept in median: {median(ratios):.2f}")


if __name__ == "__main__":
    asyncio.run(main())
