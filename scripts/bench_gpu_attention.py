"""Times the paged attention kernels on the GPU, one table per kind and shape: several ways to
build each kernel side by side, so that one run tells which to choose.

    python -m scripts.bench_gpu_attention [--only decode|prefill] [--overlapped] [--json FILE]

Every time is that of a CUDA graph of many repetitions, each on another layer's cache, so that
keys and values come from memory and not out of the L2 cache, as they do in a model. Caches and
queries are random; block tables are shuffled."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from engine.kernels.triton.decode_attention import decode_attention
from engine.kernels.triton.decode_work import DecodeConfig, DecodeWork
from engine.kernels.triton.prefill_attention import (
    PrefillConfig,
    prefill_attention,
    prefill_config,
)
from engine.kernels.triton.prefill_tiles import build_tiles

COPY_BYTES_PER_S = 4.3e12  # H200, device to device copy, read and written bytes together
DENSE_FLOPS = 790e12  # H200, large bf16 product
ROTATED_BYTES = 256 << 20  # several times the L2 cache
NUM_KV_HEADS, HEAD_DIM, BLOCK = 8, 128, 64
QUERY_HEADS = (16, 32)
DEVICE = torch.device("cuda")

DECODES: dict[str, list[int]] = {
    "1 x 256": [256],
    "1 x 16384": [16384],
    "8 x 512": [512] * 8,
    "32 x 512": [512] * 32,
    "64 x 1024": [1024] * 64,
    "256 x 256": [256] * 256,
    "256 x 1024": [1024] * 256,
    "255 x 256 + 16384": [256] * 255 + [16384],
}
# Prompts of (new tokens, tokens before them).
PREFILLS: dict[str, list[tuple[int, int]]] = {
    "16 x 3500": [(3500, 0)] * 16,
    "1 x 16384": [(16384, 0)],
    "64 x 128": [(128, 0)] * 64,
    "8 x 1024 after 2000": [(1024, 2000)] * 8,
}


@dataclass(frozen=True, slots=True)
class DecodeVariant:
    tile: int = 64
    num_warps: int = 4
    num_stages: int = 3
    min_chunk: int = 256
    num_items: int | None = None

    def name(self) -> str:
        spare = "" if self.num_items is None else f"+{self.num_items}"
        return f"t{self.tile} w{self.num_warps} s{self.num_stages} c{self.min_chunk}{spare}"


BASE = DecodeVariant()
DECODE_VARIANTS = [
    BASE,
    replace(BASE, num_stages=4),
    replace(BASE, num_stages=5),
    replace(BASE, num_stages=2),
    replace(BASE, tile=32, num_warps=2, num_stages=4),
    replace(BASE, num_warps=8),
    replace(BASE, min_chunk=64),
    replace(BASE, min_chunk=128),
    replace(BASE, min_chunk=512),
    replace(BASE, num_items=66),
    replace(BASE, num_items=300),
]

PREFILL_VARIANTS = {
    "TMA 128x64 w8 s3": PrefillConfig(128, 64, 8, 3, True),
    "TMA 128x64 w8 s2": PrefillConfig(128, 64, 8, 2, True),
    "TMA 64x64 w4 s2": PrefillConfig(64, 64, 4, 2, True),
    "TMA 128x32 w8 s3": PrefillConfig(128, 32, 8, 3, True),
    "ptr 128x64 w8 s3": PrefillConfig(128, 64, 8, 3, False),
    "ptr 128x128 w8 s2": PrefillConfig(128, 128, 8, 2, False),
    "ptr 64x64 w4 s2": PrefillConfig(64, 64, 4, 2, False),
}
OVERLAPPED = {"overlapped": PrefillConfig(128, 64, 8, 3, True, overlapped=True)}


def graph_seconds(calls: Sequence[Callable[[], object]], repeats: int = 5) -> float:
    """Median seconds per call, all calls captured in one graph."""
    calls[0]()  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    times: list[float] = []
    start, end = torch.cuda.Event(True), torch.cuda.Event(True)  # type: ignore[no-untyped-call]
    for _ in range(repeats):
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / len(calls))
    return sorted(times)[len(times) // 2]


@dataclass(frozen=True, slots=True)
class Caches:
    """keys, values: one tensor per layer; tables [rows, max_blocks]."""

    keys: list[Tensor]
    values: list[Tensor]
    tables: Tensor

    @classmethod
    def random(cls, lens: Sequence[int], rotated_bytes: int) -> Caches:
        needed = [-(-length // BLOCK) for length in lens]
        layer_bytes = 2 * sum(needed) * BLOCK * NUM_KV_HEADS * HEAD_DIM * 2
        layers = max(1, min(256, -(-rotated_bytes // layer_bytes)))
        shape = (layers, sum(needed) * BLOCK, NUM_KV_HEADS, HEAD_DIM)
        keys, values = (
            torch.randn(shape, dtype=torch.bfloat16, device=DEVICE).unbind() for _ in range(2)
        )
        tables = torch.zeros(len(lens), max(needed), dtype=torch.int32)
        order = torch.randperm(sum(needed), dtype=torch.int32)
        for row, count, end in zip(tables, needed, itertools.accumulate(needed), strict=True):
            row[:count] = order[end - count : end]
        return cls(list(keys), list(values), tables.to(DEVICE))


def decode_times(num_heads: int) -> list[dict[str, Any]]:
    return [
        result for name, lens in DECODES.items() for result in decode_case(num_heads, name, lens)
    ]


def decode_case(num_heads: int, name: str, lens: Sequence[int]) -> Iterator[dict[str, Any]]:
    caches = Caches.random(lens, ROTATED_BYTES)
    rows = len(lens)
    q = torch.randn(
        rows, num_heads + 2 * NUM_KV_HEADS, HEAD_DIM, dtype=torch.bfloat16, device=DEVICE
    )[:, :num_heads]
    out = torch.empty(rows, num_heads * HEAD_DIM, dtype=torch.bfloat16, device=DEVICE)
    slots = torch.arange(rows, dtype=torch.int32, device=DEVICE)
    context_lens = torch.tensor(lens, dtype=torch.int32, device=DEVICE)
    moved = 2 * sum(lens) * NUM_KV_HEADS * HEAD_DIM * 2
    layers = itertools.cycle(zip(caches.keys, caches.values, strict=True))
    pairs = list(itertools.islice(layers, max(20, len(caches.keys))))
    for variant in DECODE_VARIANTS:
        work = DecodeWork(
            256,
            num_heads=num_heads,
            num_kv_heads=NUM_KV_HEADS,
            head_dim=HEAD_DIM,
            block_size=BLOCK,
            device=DEVICE,
            config=DecodeConfig(variant.tile, variant.num_warps, variant.num_stages),
            min_chunk=variant.min_chunk,
            num_items=variant.num_items,
        )
        work.plan(context_lens)
        rest = (out, caches.tables, slots, context_lens, work)
        calls = [
            partial(decode_attention, q, keys, values, *rest, scale=0.09) for keys, values in pairs
        ]
        seconds = graph_seconds(calls)
        yield {
            "kind": "decode",
            "heads": num_heads,
            "case": name,
            "variant": variant.name(),
            "us": seconds * 1e6,
            "gb_per_s": moved / seconds / 1e9,
            "share": moved / seconds / COPY_BYTES_PER_S,
        }
        if variant == BASE and num_heads == QUERY_HEADS[0]:
            plan = graph_seconds([partial(work.plan, context_lens)] * 20)
            yield {"kind": "plan", "case": name, "us": plan * 1e6}


def flash_call(
    q: Tensor, k: Tensor, v: Tensor, counts: Sequence[int]
) -> Callable[[], object] | None:
    """torch's own variable-length flash attention over contiguous new keys, where it is built."""
    ends = torch.tensor([0, *itertools.accumulate(counts)], dtype=torch.int32, device=DEVICE)
    longest = max(counts)
    call = partial(
        torch.ops.aten._flash_attention_forward,
        *(q, k, v, ends, ends, longest, longest, 0.0, True, False),
        scale=0.09,
    )
    try:
        call()
    except RuntimeError as error:
        print("no flash attention in this torch:", str(error).splitlines()[0])
        return None
    return call


def prefill_times(num_heads: int) -> list[dict[str, Any]]:
    return [
        result
        for name, chunks in PREFILLS.items()
        for result in prefill_case(num_heads, name, chunks)
    ]


def prefill_case(
    num_heads: int, name: str, chunks: Sequence[tuple[int, int]]
) -> Iterator[dict[str, Any]]:
    counts, prefixes = [new for new, _ in chunks], [before for _, before in chunks]
    caches = Caches.random([sum(chunk) for chunk in chunks], 0)
    total = sum(counts)
    qkv = torch.randn(
        total, num_heads + 2 * NUM_KV_HEADS, HEAD_DIM, dtype=torch.bfloat16, device=DEVICE
    )
    q, k = qkv[:, :num_heads], qkv[:, num_heads : num_heads + NUM_KV_HEADS]
    v = qkv[:, num_heads + NUM_KV_HEADS :]
    out = torch.empty(total, num_heads * HEAD_DIM, dtype=torch.bfloat16, device=DEVICE)
    starts = list(itertools.accumulate([0, *counts[:-1]]))
    pairs = sum(new * before + new * (new + 1) // 2 for new, before in chunks)
    calls: dict[str, Callable[[], object] | None] = {}
    for label, config in PREFILL_VARIANTS.items():
        if config.descriptors and torch.cuda.get_device_capability() < (9, 0):
            continue
        tiles = build_tiles(starts, counts, prefixes, range(len(counts)), config.tile_size)
        calls[label] = partial(
            prefill_attention,
            *(q, caches.keys[0], caches.values[0], out, caches.tables),
            torch.from_numpy(tiles).to(DEVICE),
            block_size=BLOCK,
            scale=0.09,
            config=config,
        )
    if not any(prefixes):
        calls["torch flash"] = flash_call(q, k, v, counts)
    for label, call in calls.items():
        if call is None:
            continue
        seconds = graph_seconds([call] * 5)
        flops = 4 * HEAD_DIM * num_heads * pairs / seconds
        yield {
            "kind": "prefill",
            "heads": num_heads,
            "case": name,
            "variant": label,
            "us": seconds * 1e6,
            "tflops": flops / 1e12,
            "share": flops / DENSE_FLOPS,
        }


def print_table(results: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], str]) -> None:
    """A line per variant, a column per case."""
    cases = list(dict.fromkeys(result["case"] for result in results))
    cells = {(result["variant"], result["case"]): value(result) for result in results}
    variants = list(dict.fromkeys(result["variant"] for result in results))
    widths = [max(len(case), 14) for case in cases]
    print(" " * 20 + "".join(f"{case:>{w + 2}}" for case, w in zip(cases, widths, strict=True)))
    for variant in variants:
        line = (cells.get((variant, case), "-") for case in cases)
        row = "".join(f"{cell:>{w + 2}}" for cell, w in zip(line, widths, strict=True))
        print(f"{variant:20}{row}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("decode", "prefill"))
    parser.add_argument(
        "--overlapped", action="store_true", help="with the kernel for Hopper laid out by hand"
    )
    parser.add_argument("--json", type=Path, help="write all figures here")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("needs a CUDA device")
    if options.overlapped:
        PREFILL_VARIANTS.update(OVERLAPPED)
    torch.manual_seed(0)
    started = perf_counter()
    results: list[dict[str, Any]] = []
    for num_heads in QUERY_HEADS:
        shape = f"{num_heads} heads, {NUM_KV_HEADS} key heads of {HEAD_DIM}, bf16"
        if options.only != "prefill":
            found = decode_times(num_heads)
            results += found
            print(f"\ndecode, {shape}: us (share of {COPY_BYTES_PER_S / 1e12} TB/s)")
            print_table(
                [result for result in found if result["kind"] == "decode"],
                lambda result: f"{result['us']:.1f} ({result['share']:.0%})",
            )
            plans = [f"{r['case']}: {r['us']:.1f}" for r in found if r["kind"] == "plan"]
            if plans:
                print("plan, us:", ", ".join(plans))
        if options.only != "decode":
            found = prefill_times(num_heads)
            results += found
            chosen = prefill_config(HEAD_DIM, torch.bfloat16, BLOCK, DEVICE)
            print(f"\nprefill, {shape}: us (TFLOP/s); the rule chooses {chosen}")
            print_table(found, lambda result: f"{result['us']:.0f} ({result['tflops']:.0f})")
    print(f"\n{torch.cuda.get_device_name()}, {perf_counter() - started:.0f} s in all")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
