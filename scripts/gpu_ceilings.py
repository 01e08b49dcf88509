"""Measures what a device can do at most: bytes that a copy moves, and operations of a product.

    python -m scripts.gpu_ceilings

Both are what floors are computed from (scripts/gpu_floors.py).
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Ceilings:
    """`bytes_per_s`: read and written bytes of a copy in the device's memory, added.
    `flops_per_s`: multiplications and additions of a large product of 16-bit floats."""

    device: str
    bytes_per_s: float
    flops_per_s: float


def measure_ceilings(device: torch.device, *, quick: bool = False) -> Ceilings:
    """Some seconds on a GPU, where it takes about 3 GiB of memory; `quick` is small and means
    nothing."""
    num_bytes = 1 << (20 if quick else 30)
    size = 128 if quick else 8192
    repeats = 3 if quick else 20
    source = torch.randint(0, 255, (num_bytes,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy_s = median_s(lambda: target.copy_(source), device, repeats)
    # Random values: products of zeros draw less power, and run at a higher clock.
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(left)
    product_s = median_s(lambda: torch.mm(left, right, out=out), device, repeats)
    is_cuda = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if is_cuda else "CPU"
    return Ceilings(name, 2 * num_bytes / copy_s, 2 * size**3 / product_s)


def median_s(run: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Seconds of one `run` on `device`: the median of `repeats`, after three that do not count."""
    for _ in range(3):
        run()
    if device.type != "cuda":
        times = []
        for _ in range(repeats):
            began_s = time.perf_counter()
            run()
            times.append(time.perf_counter() - began_s)
        return statistics.median(times)
    marks: Any = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]  # type: ignore[no-untyped-call]
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    torch.cuda.synchronize(device)
    times = [begin.elapsed_time(end) / 1000 for begin, end in itertools.pairwise(marks)]
    return statistics.median(times)


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(json.dumps(asdict(measure_ceilings(device, quick=device.type == "cpu")), indent=1))


if __name__ == "__main__":
    main()
