"""Processes beside a measurement on a GPU: fresh starts of the engine, and `transformers`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from engine.api import EngineConfig, create_engine

TRANSFORMERS_LIMIT_S = 120.0
START_LIMIT_S = 180.0


def num_compiled_kernels() -> int:
    """How many kernels Triton has in its cache on the disk."""
    folder = os.environ.get("TRITON_CACHE_DIR")
    cache = Path(folder) if folder else Path("~/.triton/cache").expanduser()
    return sum(1 for _ in cache.glob("*/*.cubin"))


def process_age_s() -> float | None:
    """Seconds since this process was started; None where the system does not tell."""
    try:
        fields = Path("/proc/self/stat").read_text("ascii").rpartition(")")[2].split()
        uptime_s = float(Path("/proc/uptime").read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None
    age_s = uptime_s - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return age_s if 0.0 <= age_s < 3600.0 else None


def start_only(config: EngineConfig) -> None:
    """Starts an engine as the server does, tells its tokens of cache, and ends."""

    async def start() -> None:
        engine = create_engine(config)
        await engine.start()
        print(json.dumps({"kv_cache_tokens": engine.model.kv_cache_tokens}), flush=True)
        await engine.shutdown(0)

    asyncio.run(start())


def fresh_start_s(arguments: Sequence[str]) -> float:
    """Seconds from the start of a process until its engine is ready. Raises RuntimeError."""
    command = [sys.executable, "-m", "scripts.bench_gpu", *arguments, "--start-only"]
    began_s = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready_s = time.perf_counter() - began_s
        try:
            process.wait(START_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
    if "kv_cache_tokens" not in line:
        raise RuntimeError(f"the engine did not start in a process of its own: {line}")
    return ready_s


def transformers_figures(folder: Path, *, quick: bool) -> dict[str, float]:
    """`transformers`' figures by work, from a process of its own; empty, with a sentence, where
    it fails or takes too long."""
    command = [sys.executable, "-m", "scripts.gpu_transformers", str(folder)]
    if quick:
        command += ["--batches", "1", "2", "--tokens", "4", "--prefill", "32"]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, timeout=TRANSFORMERS_LIMIT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        print(f"transformers was not measured: {error}", file=sys.stderr)
        return {}
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures
