"""Measures the native kernels alone, on one thread.

Products of packed weights by kind and number of rows, inputs quantized on the way, in billions of
multiply-adds a second; and attention of a prompt, in milliseconds a layer.

    python -m scripts.bench_kernels
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from engine.execution.flat_step import FlatStep
from engine.kernels.native.library import NativeEngine, load_library, pointer
from engine.kernels.native.structs import CacheView, batch_struct
from engine.models.packed import PackedKind, PackedLinear, PackedSegment

ROWS, COLUMNS = 1536, 576
NUM_INPUTS = (1, 4, 16, 512)
PROMPT, HEADS, KV_HEADS, HEAD_DIM = 1000, 9, 3, 64  # SmolLM2-135M's
BLOCK_SIZE = 16


def fastest_s(run: Callable[[], object], seconds: float = 0.4) -> float:
    """The shortest of all runs that fit into `seconds`."""
    best, end_s = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        started_s = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - started_s)
    return best


def measure_products(engine: NativeEngine) -> None:
    for kind in PackedKind:
        size = engine.library.lectern_packed_bytes(kind, ROWS, COLUMNS)
        # Any bytes are codes; small ones are harmless float16 scales, too.
        data = torch.randint(0, 60, (size,), dtype=torch.uint8)
        linear = PackedLinear(engine, [PackedSegment(kind, ROWS, COLUMNS, data)])
        rates = []
        for num_inputs in NUM_INPUTS:
            x = torch.randn(num_inputs, COLUMNS)
            seconds = fastest_s(lambda linear=linear, x=x: linear(x))  # type: ignore[misc]
            rates.append(f"{num_inputs} rows {ROWS * COLUMNS * num_inputs / seconds / 1e9:.0f}")
        print(f"{kind.name}: {', '.join(rates)}")


def measure_attention(engine: NativeEngine) -> None:
    num_blocks = -(-PROMPT // BLOCK_SIZE)
    shape = (num_blocks * BLOCK_SIZE, KV_HEADS, HEAD_DIM)
    keys, values = torch.zeros(shape).half(), torch.zeros(shape).half()
    view = CacheView(pointer(keys), pointer(values), 1, KV_HEADS, HEAD_DIM, BLOCK_SIZE)
    positions, start = np.arange(PROMPT), np.array([0])
    blocks = np.arange(num_blocks, dtype=np.int32)
    length = np.array([PROMPT])
    step = FlatStep(
        positions, positions, positions, start, length, length, start, blocks, start, ()
    )
    q, k, v = (torch.randn(PROMPT, heads, HEAD_DIM) for heads in (HEADS, KV_HEADS, KV_HEADS))
    batch = batch_struct(step)
    seconds = fastest_s(lambda: engine.attend(view, batch, q, k, v, scale=0.125, window=0))
    print(f"attention of {PROMPT} tokens, {HEADS}/{KV_HEADS} heads: {seconds * 1e3:.1f} ms a layer")


def main() -> None:
    library = load_library()
    if library is None:
        raise SystemExit("The native kernels are not built: scripts/setup.")
    engine = NativeEngine(library, num_threads=1)
    measure_products(engine)
    measure_attention(engine)


if __name__ == "__main__":
    main()
