"""Times the element-wise kernels of a decoder layer and float8 products on a GPU.

    python -m scripts.bench_gpu_layers

Everything runs in CUDA graphs over so many copies of its inputs that a large one does not stay in
the L2 cache; a small one does, as in a step, where another kernel has just written it. Floors are
bytes over 4.3 TB/s. Takes under a minute, most of it compiling.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from engine.kernels.triton.activation import gated
from engine.kernels.triton.norm import add_rms_norm, embed_rms_norm, rms_norm
from engine.kernels.triton.quantize import add_rms_norm_quantize, gated_quantize, quantize_rows
from engine.kernels.triton.rotary import rotate_and_store
from engine.models import fp8
from engine.models.fp8 import FP8, MIN_CAPABILITY, Fp8Linear
from scripts.gpu_ceilings import median_s

BYTES_PER_S = 4.3e12
POOL_BYTES = 400_000_000
CALLS = 24
EPS = 1e-6
DTYPE = torch.bfloat16
Run = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of one layer."""

    name: str
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    inner: int

    @property
    def qkv(self) -> int:
        """Columns of the merged projection."""
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim


SHAPES = [
    Shape("0.6B", 1024, 16, 8, 128, 3072),
    Shape("8B", 4096, 32, 8, 128, 12288),
]
ROWS = [1, 32, 256, 8192]


def microseconds(runs: list[Run]) -> float:
    """Of one of `runs`, each the same on other memory, in a graph of `CALLS` of them."""
    for run in runs:  # compiles, and lets cuBLAS allocate
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in range(CALLS):
            runs[call % len(runs)]()
    return median_s(graph.replay, torch.device("cuda"), 10) / CALLS * 1e6


def copies(num_bytes: int) -> int:
    """How many times to have something of `num_bytes`, so that it does not stay in a cache."""
    return max(1, min(CALLS, POOL_BYTES // num_bytes))


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=DTYPE)


def elementwise(shape: Shape, rows: int) -> list[tuple[str, int, list[Run]]]:
    """(name, bytes read and written, the same on other memory)."""
    hidden, inner = shape.hidden, shape.inner
    weight = draw(hidden)
    x_bytes, gate_bytes = rows * hidden * 2, rows * inner * 2
    inputs = [(draw(rows, hidden), draw(rows, hidden)) for _ in range(copies(2 * x_bytes))]
    gates = [draw(rows, 2 * inner) for _ in range(copies(3 * gate_bytes))]
    table = draw(20_000, hidden)
    ids = torch.randint(20_000, (rows,), dtype=torch.int32, device="cuda")
    cases: list[tuple[str, int, list[Run]]] = [
        ("rms_norm", 2 * x_bytes, [partial(rms_norm, x, weight, EPS) for x, _ in inputs]),
        (
            "add_rms_norm",
            4 * x_bytes,
            [partial(add_rms_norm, x, r, weight, EPS) for x, r in inputs],
        ),
        ("embed_rms_norm", 3 * x_bytes, [partial(embed_rms_norm, ids, table, weight, EPS)]),
        ("gated silu", 3 * gate_bytes, [partial(gated, gate) for gate in gates]),
    ]
    if rows < ROWS[-1]:  # started ahead of the one in front: what is left of a launch
        cases += [
            (f"{name} pdl", num_bytes, [partial(run, pdl=True) for run in runs])
            for name, num_bytes, runs in cases
            if name != "embed_rms_norm"
        ]
    if torch.cuda.get_device_capability() >= MIN_CAPABILITY:
        cases += [
            ("quantize_rows", x_bytes * 3 // 2, [partial(quantize_rows, x) for x, _ in inputs]),
            (
                "add_rms_norm_quantize",
                x_bytes * 7 // 2,
                [partial(add_rms_norm_quantize, x, r, weight, EPS) for x, r in inputs],
            ),
            ("gated_quantize", gate_bytes * 5 // 2, [partial(gated_quantize, g) for g in gates]),
        ]
    return cases + rotations(shape, rows)


def rotations(shape: Shape, rows: int) -> list[tuple[str, int, list[Run]]]:
    q_bytes = rows * shape.num_heads * shape.head_dim * 2
    kv_bytes = rows * 2 * shape.num_kv_heads * shape.head_dim * 2
    angles = torch.rand(8192, shape.head_dim // 2, device="cuda")
    cos, sin = angles.cos().to(DTYPE), angles.sin().to(DTYPE)
    positions = torch.randint(8192, (rows,), dtype=torch.int32, device="cuda")
    slots = torch.randperm(65_536, device="cuda")[:rows].int()
    head_norm = draw(shape.head_dim)
    inputs = [draw(rows, shape.qkv) for _ in range(copies(q_bytes + kv_bytes))]
    cases: list[tuple[str, int, list[Run]]] = []
    fp8_too = torch.cuda.get_device_capability() >= MIN_CAPABILITY
    for dtype in (DTYPE, FP8)[: 1 + fp8_too]:
        keys, values = (
            torch.empty((65_536, shape.num_kv_heads, shape.head_dim), dtype=dtype, device="cuda")
            for _ in range(2)
        )
        run = partial(
            rotate_and_store,
            positions=positions,
            cache_slots=slots,
            cos=cos,
            sin=sin,
            keys=keys,
            values=values,
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            q_norm=head_norm,
            k_norm=head_norm,
        )
        num_bytes = 2 * q_bytes + kv_bytes + kv_bytes * dtype.itemsize // 2
        name = f"rotate_and_store{' fp8' if dtype == FP8 else ''}"
        cases.append((name, num_bytes, [partial(run, qkv) for qkv in inputs]))
        if rows < ROWS[-1] and dtype == DTYPE:
            cases.append(
                (f"{name} pdl", num_bytes, [partial(run, qkv, pdl=True) for qkv in inputs])
            )
    return cases


def print_elementwise() -> None:
    print("| shape | kernel | rows | µs | GB/s | floor µs | of the floor's speed |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for shape in SHAPES:
        for rows in ROWS:
            for name, num_bytes, runs in elementwise(shape, rows):
                took = microseconds(runs)
                floor = num_bytes / BYTES_PER_S * 1e6
                print(
                    f"| {shape.name} | {name} | {rows} | {took:.2f} | "
                    f"{num_bytes / took / 1e3:.0f} | {floor:.2f} | {floor / took:.0%} |",
                    flush=True,
                )


def print_products() -> None:
    """bfloat16 and float8 products of the larger shape, with the inputs' quantization."""
    shape = SHAPES[-1]
    products = {
        "qkv": (shape.qkv, shape.hidden),
        "output": (shape.hidden, shape.num_heads * shape.head_dim),
        "gate_up": (2 * shape.inner, shape.hidden),
        "down": (shape.hidden, shape.inner),
    }
    print("\n| product | rows | bf16 µs | fp8 µs | with quantize µs | fast sums µs | floor µs |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, (outputs, columns) in products.items():
        number = copies(outputs * columns * 2)
        weights = [draw(outputs, columns) * 0.02 for _ in range(number)]
        rounded = [Fp8Linear(weight) for weight in weights]
        for rows in ROWS:
            x = draw(rows, columns)
            codes, scales = quantize_rows(x)
            plain = microseconds([partial(functional.linear, x, weight) for weight in weights])
            times = [microseconds([partial(linear.multiply, codes, scales) for linear in rounded])]
            times.append(microseconds([partial(linear, x) for linear in rounded]))
            fp8.FAST_ACCUMULATION = True
            times.append(microseconds([partial(line.multiply, codes, scales) for line in rounded]))
            fp8.FAST_ACCUMULATION = False
            num_bytes = outputs * columns + rows * (columns + 2 * outputs)
            floor = num_bytes / BYTES_PER_S * 1e6
            row = " | ".join(f"{took:.1f}" for took in (plain, *times, floor))
            print(f"| {name} {outputs}x{columns} | {rows} | {row} |", flush=True)
    print_errors(*products["down"])


def print_errors(outputs: int, columns: int) -> None:
    """Against the exact product, and of the sums alone: against that of the rounded factors."""
    weight, x = draw(outputs, columns) * 0.02, draw(256, columns)
    linear = Fp8Linear(weight)
    exact = functional.linear(x.double(), weight.double())
    codes, scales = quantize_rows(x)
    rounded = functional.linear(
        codes.double() * scales.double(), linear.codes.double() * linear.scales.double()
    )
    print(f"\nRelative errors over {columns} columns: rounding {error(rounded, exact):.4f}")
    print(f"bf16 product {error(functional.linear(x, weight), exact):.5f}")
    for fast in (False, True):
        fp8.FAST_ACCUMULATION = fast
        got = linear.multiply(codes, scales)
        print(f"fp8 sums, fast {fast}: {error(got, rounded):.5f}; all {error(got, exact):.4f}")
    fp8.FAST_ACCUMULATION = False


def error(got: Tensor, wanted: Tensor) -> float:
    return float((got.double() - wanted).norm() / wanted.norm())


@torch.inference_mode()
def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    print(torch.cuda.get_device_name(), torch.__version__)
    print_elementwise()
    if torch.cuda.get_device_capability() >= MIN_CAPABILITY:
        print_products()


if __name__ == "__main__":
    main()
