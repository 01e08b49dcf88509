"""Measures a whole server: start to ready, one stream alone, and a class that asks at once.

    .venv/bin/python -m scripts.bench_server [--model NAME] [--requests 16] [--json FILE]

The server is a process of its own with this machine's data folder; the weights should be fetched
before. The first start is measured with the converted copy moved away, the second with it. All
traffic is on loopback. Prompts are course-like: a shared beginning and a part of its own, of
different lengths; answers have different lengths and EOS is ignored, so that the work is the same
whatever the model says.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from scripts.chat_client import ask

ROOT = Path(__file__).parents[1]
READY = re.compile(r"Lectern is ready: (http://\S+)")
SHARED = (
    "Course material: the scheduler of an inference engine gives each step a token budget. "
    "Decodes come first, then prefill chunks; a sequence that finds no free block is preempted. "
)
OWN = "The key value cache is divided into blocks of sixteen tokens, shared where prompts agree. "


@contextmanager
def server(model: str, data_dir: Path) -> Iterator[tuple[str, float]]:
    """Address and seconds to ready of a server that runs inside the block."""
    started_s = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "server", "--model", model, "--port", "0",
         "--data-dir", str(data_dir)],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if match := READY.search(line):
                yield match[1], time.perf_counter() - started_s
                break
        else:
            raise SystemExit(f"the server ended with {process.wait()}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def question(repeat: int, max_tokens: int, tag: str) -> dict[str, Any]:
    """A request whose prompt has about 20 · (10 + `repeat`) tokens."""
    return {
        "messages": [
            {"role": "system", "content": SHARED * 5},
            {"role": "user", "content": f"{tag} " + OWN * repeat + "What is a block?"},
        ],
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }


async def measure(address: str, num_requests: int) -> dict[str, float]:
    async with httpx.AsyncClient(base_url=address, timeout=600) as client:
        alone = [await ask(client, question(8, 48, f"warm{index}")) for index in range(3)]
        cold = await ask(client, question(30, 1, "another question altogether"))
        began = time.perf_counter()
        crowd_tasks = [
            asyncio.create_task(
                ask(client, question(3 + index % 7, 24 + 8 * index, f"student {index}"))
            )
            for index in range(num_requests)
        ]
        # One more comes when the first of them streams.
        await asyncio.wait(crowd_tasks, return_when=asyncio.FIRST_COMPLETED)
        late = await ask(client, question(3, 8, "late"))
        crowd = await asyncio.gather(*crowd_tasks)
    last_s = max(stream.last_s for stream in crowd)
    together = max(stream.first_s for stream in crowd) < min(stream.last_s for stream in crowd)
    num_tokens = sum(stream.completion_tokens for stream in crowd)
    return {
        "alone_tokens_per_s": statistics.median(answer.tokens_per_s for answer in alone),
        "alone_ttft_s": statistics.median(stream.ttft_s for stream in alone),
        "prefill_tokens_per_s": (cold.prompt_tokens - cold.cached_tokens) / cold.ttft_s,
        "crowd_requests": num_requests,
        "crowd_output_tokens_per_s": num_tokens / (last_s - began),
        "crowd_ttft_p50_s": statistics.median(stream.ttft_s for stream in crowd),
        "crowd_ttft_max_s": max(stream.ttft_s for stream in crowd),
        "crowd_all_streaming_at_once": float(together),
        "late_ttft_s": late.ttft_s,
        "late_first_token_before_the_end_s": last_s - late.first_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="qwen2.5-coder-0.5b-instruct", help="catalogue name")
    parser.add_argument("--requests", type=int, default=16, help="how many ask at once")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()

    from server.config import ServerConfig

    weights = ServerConfig().models_dir / f"{options.model}.gguf"
    if not weights.exists():
        raise SystemExit(f"first: scripts/fetch_models.py {options.model}")
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        (data_dir / "models").mkdir()
        (data_dir / "models" / weights.name).symlink_to(weights)
        figures: dict[str, Any] = {"model": options.model}
        with server(options.model, data_dir) as (_, ready_s):
            figures["first_start_s"] = ready_s
        starts = []
        for _ in range(3):
            with server(options.model, data_dir) as (_, ready_s):
                starts.append(ready_s)
        figures["next_start_s"] = statistics.median(starts)
        with server(options.model, data_dir) as (address, _):
            figures |= asyncio.run(measure(address, options.requests))
    for name, value in figures.items():
        print(f"{name:36} {value if isinstance(value, str) else round(value, 2)}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
