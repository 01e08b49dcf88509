"""Times products with few rows on an NVIDIA GPU: the streaming kernel beside cuBLAS.

    python -m scripts.bench_gpu_linear

Shows why `skinny_linear.choose_config` chooses as it does: for the Qwen3 shapes of 0.6B and 8B it
times all layers and the head in one CUDA graph, with attention replaced by a copy, then each
product alone, walking through so many copies of its weights that the L2 cache does not help.
"PDL" marks dependent launches. `--weights fp8` has all but the head in 8-bit floats, beside cuBLAS
on 8-bit inputs. Takes about half a minute, much of it compiling.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from engine.kernels.triton.dependent_launch import launch_options, wait_for_launcher
from engine.kernels.triton.skinny_linear import (
    MAX_ROWS,
    SkinnyConfig,
    choose_config,
    choose_fp8_config,
    skinny_gate_up,
    skinny_linear,
)
from engine.models.fp8 import Fp8Linear
from engine.models.linear import Linear
from scripts.gpu_ceilings import median_s

BYTES_PER_S = 4.3e12
EPS = 1e-6
DTYPE = torch.bfloat16
# A graph's walk through copies of a product's weights: far more than the L2 cache (60 MB).
WALK_BYTES = 600_000_000
REPEATS = 7
# What the rule chooses from, and what was best next to it.
CONFIGS = [
    SkinnyConfig(4, 512, programs=4),
    SkinnyConfig(4, 512, programs=7, pdl=True),
    SkinnyConfig(8, 512, programs=3, pdl=True),
    SkinnyConfig(8, 1024, num_warps=8, programs=2, pdl=True),
    SkinnyConfig(4, 512, programs=4, max_registers=128),
    SkinnyConfig(4, 512, programs=5, max_registers=96),
]

# The same for 8-bit weights; `block_n` counts the rows of gate and up.
FP8_CONFIGS = [
    SkinnyConfig(4, 512, 4, programs=8, max_registers=64),
    SkinnyConfig(8, 512, 4, programs=4, max_registers=112),
    SkinnyConfig(8, 512, 4, programs=4, pdl=True, max_registers=112),
    SkinnyConfig(8, 256, 2, programs=9, max_registers=112),
    SkinnyConfig(8, 256, 2, programs=10, max_registers=96),
    SkinnyConfig(8, 256, 2, programs=8, max_registers=128),
    SkinnyConfig(8, 256, 2, programs=8, pdl=True, max_registers=128),
    SkinnyConfig(8, 128, 1, programs=18, max_registers=112),
]
Weight = Linear | Fp8Linear


@dataclass(frozen=True, slots=True)
class Product:
    """A product of [rows, size] by the transpose of [columns (twice when gated), size]."""

    name: str
    columns: int
    size: int
    norm: bool = False
    gated: bool = False
    fp8: bool = False

    @property
    def weight_rows(self) -> int:
        return self.columns * (2 if self.gated else 1)

    @property
    def num_bytes(self) -> int:
        return self.weight_rows * self.size * (1 if self.fp8 else DTYPE.itemsize)

    @property
    def config(self) -> SkinnyConfig:
        if self.fp8:
            return choose_fp8_config(self.columns, self.size // 4, self.gated)
        return choose_config(self.columns, self.size // 2, self.gated)

    @property
    def configs(self) -> list[SkinnyConfig]:
        """Others."""
        if not self.fp8:
            return CONFIGS
        if not self.gated:
            return FP8_CONFIGS
        return [replace(config, block_n=config.block_n // 2) for config in FP8_CONFIGS]

    def new_weight(self) -> Weight:
        weight = randn(self.weight_rows, self.size, scale=0.02)
        return Fp8Linear(weight) if self.fp8 else Linear(weight)

    def ours(
        self, x: Tensor, weight: Weight, norm: Tensor, out: Tensor, config: SkinnyConfig | None
    ) -> None:
        """Into `out`, or added to it where there is no norm."""
        scales = None
        if isinstance(weight, Fp8Linear):
            values, scales = weight.codes, weight.scales
        else:
            values = weight.weight
        if self.gated:
            skinny_gate_up(
                x,
                values,
                scales=scales,
                norm_weight=norm,
                eps=EPS,
                out=out,
                pdl=True,
                config=config,
            )
            return
        skinny_linear(
            x,
            values,
            scales=scales,
            residual=None if self.norm else out,
            norm_weight=norm if self.norm else None,
            eps=EPS,
            out=out,
            pdl=True,
            config=config,
        )

    def cublas(self, x: Tensor, weight: Weight, norm: Tensor, out: Tensor) -> Tensor:
        """The same, but where there is a norm the result is a new tensor."""
        if not self.norm:
            if isinstance(weight, Linear):
                return torch.addmm(out, x, weight.weight.T, out=out)
            return out.add_(weight(x))
        y = weight(functional.rms_norm(x, (self.size,), norm, EPS))
        if not self.gated:
            return y
        gate, up = y.chunk(2, dim=-1)
        return functional.silu(gate) * up


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model."""

    name: str
    hidden: int
    qkv: int
    attention: int
    inner: int
    layers: int
    vocabulary: int = 151_936

    def products(self, fp8: bool) -> list[Product]:
        """The four of a layer, then the head, which is never in 8-bit floats."""
        gate_up = Product("norm, gate and up, silu", self.inner, self.hidden, True, True, fp8)
        return [
            Product("norm, qkv", self.qkv, self.hidden, norm=True, fp8=fp8),
            Product("output, residual", self.hidden, self.attention, fp8=fp8),
            gate_up,
            Product("down, residual", self.hidden, self.inner, fp8=fp8),
            Product("norm, head", self.vocabulary, self.hidden, norm=True),
        ]


SHAPES = [
    Shape("0.6B", hidden=1024, qkv=4096, attention=2048, inner=3072, layers=28),
    Shape("8B", hidden=4096, qkv=6144, attention=4096, inner=12288, layers=36),
]


def describe(config: SkinnyConfig) -> str:
    return (
        f"{config.block_n}x{config.block_k}, {config.num_warps} warps, "
        f"{config.programs} programs{', PDL' if config.pdl else ''}"
        f"{f', {config.max_registers} registers' if config.max_registers else ''}"
    )


def graph_s(run: Callable[[], object]) -> float:
    """Seconds of one replay of a graph of `run`."""
    run()  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return median_s(graph.replay, torch.device("cuda"), REPEATS)


@triton.jit  # type: ignore[untyped-decorator]
def _copy_kernel(source, target, size, BLOCK: tl.constexpr, PDL: tl.constexpr):  # type: ignore[no-untyped-def]
    if PDL:
        wait_for_launcher()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < size), mask=at < size)


def copy(source: Tensor, target: Tensor, pdl: bool) -> None:
    """In attention's place: about the shortest kernel that reads one side and writes the other."""
    size = min(source.numel(), target.numel())
    options = launch_options(pdl, source.device)
    _copy_kernel[(triton.cdiv(size, 1024),)](source, target, size, BLOCK=1024, **options)


def randn(*shape: int, scale: float = 1.0) -> Tensor:
    return torch.empty(*shape, dtype=DTYPE, device="cuda").normal_(0, scale)


class Chain:
    """All layers of a model and its head, attention replaced by a copy."""

    def __init__(self, shape: Shape, fp8: bool) -> None:
        self._shape = shape
        *self._products, self._head = shape.products(fp8)
        self._layers = [
            [product.new_weight() for product in self._products] for _ in range(shape.layers)
        ]
        self._head_weight = self._head.new_weight()
        self._norm = torch.ones(shape.hidden, dtype=DTYPE, device="cuda")
        layer_bytes = sum(product.num_bytes for product in self._products)
        self.num_bytes = shape.layers * layer_bytes + self._head.num_bytes
        self.configs = self._products[0].configs

    def ours(self, rows: int, choice: int | None) -> Callable[[], None]:
        """Products of the layers cut by one of `configs`, or each as the rule says, as the head."""
        shape, norm = self._shape, self._norm
        to_qkv, output, gate_up, down = self._products
        hidden, qkv = randn(rows, shape.hidden), randn(rows, shape.qkv)
        attended, gated = randn(rows, shape.attention), randn(rows, shape.inner)
        logits = randn(rows, shape.vocabulary)
        configs = [
            product.config if choice is None else product.configs[choice]
            for product in self._products
        ]

        def run() -> None:
            for weights in self._layers:
                to_qkv.ours(hidden, weights[0], norm, qkv, configs[0])
                copy(qkv, attended, configs[0].pdl)
                output.ours(attended, weights[1], norm, hidden, configs[1])
                gate_up.ours(hidden, weights[2], norm, gated, configs[2])
                down.ours(gated, weights[3], norm, hidden, configs[3])
            self._head.ours(hidden, self._head_weight, norm, logits, None)

        return run

    def cublas(self, rows: int) -> Callable[[], None]:
        shape, norm = self._shape, self._norm
        to_qkv, output, gate_up, down = self._products
        hidden, attended = randn(rows, shape.hidden), randn(rows, shape.attention)

        def run() -> None:
            for weights in self._layers:
                copy(to_qkv.cublas(hidden, weights[0], norm, hidden), attended, False)
                output.cublas(attended, weights[1], norm, hidden)
                gated = gate_up.cublas(hidden, weights[2], norm, hidden)
                down.cublas(gated, weights[3], norm, hidden)
            self._head.cublas(hidden, self._head_weight, norm, hidden)

        return run


def bench_chain(shape: Shape, row_counts: list[int], fp8: bool) -> None:
    chain = Chain(shape, fp8)
    print(f"\n{shape.name}: {shape.layers} layers and the head, {chain.num_bytes / 1e9:.2f} GB: "
          f"{chain.num_bytes / BYTES_PER_S * 1e3:.3f} ms at 4.3 TB/s")  # fmt: skip
    for rows in row_counts:
        print(f"  {rows} rows")
        print(f"    {'cuBLAS':52} {graph_s(chain.cublas(rows)) * 1e3:7.3f} ms")
        print(f"    {'the rule':52} {graph_s(chain.ours(rows, None)) * 1e3:7.3f} ms")
        for choice, config in enumerate(chain.configs):
            time_s = graph_s(chain.ours(rows, choice))
            print(f"    {describe(config):52} {time_s * 1e3:7.3f} ms", flush=True)


def product_variants(product: Product, rows: int) -> Iterator[tuple[str, Callable[..., object]]]:
    """Labels and what to call with a weight."""
    x, norm = randn(rows, product.size), torch.ones(product.size, dtype=DTYPE, device="cuda")
    out = randn(rows, product.columns)
    yield "cuBLAS, product alone", lambda weight: weight(x)
    yield "cuBLAS", lambda weight: product.cublas(x, weight, norm, out)
    for config in [product.config, *(one for one in product.configs if one != product.config)]:
        mark = "* " if config == product.config else ""
        yield (
            mark + describe(config),
            lambda weight, config=config: product.ours(x, weight, norm, out, config),
        )


def bench_product(product: Product, row_counts: list[int]) -> None:
    copies = -(-WALK_BYTES // product.num_bytes)
    weights = [product.new_weight() for _ in range(copies)]
    for rows in row_counts:
        print(f"  {product.name} [{product.weight_rows}, {product.size}], {rows} rows")
        for label, call in product_variants(product, rows):

            def walk(call: Callable[..., object] = call) -> None:
                for weight in weights:
                    call(weight)

            time_s = graph_s(walk) / copies
            rate = product.num_bytes / time_s / 1e12
            print(f"    {label:52} {time_s * 1e6:8.2f} µs {rate:5.2f} TB/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[1, 2, 4], choices=range(1, MAX_ROWS + 1)
    )
    parser.add_argument("--weights", default="bfloat16", choices=["bfloat16", "fp8"])
    arguments = parser.parse_args()
    fp8 = arguments.weights == "fp8"
    if not torch.cuda.is_available():
        parser.error("needs a CUDA device")
    began_s = time.monotonic()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    for shape in SHAPES:
        bench_chain(shape, arguments.rows, fp8)
        torch.cuda.empty_cache()
    for shape in SHAPES:
        print(f"\n{shape.name}, single products (* what the rule chooses)")
        for product in shape.products(fp8):
            bench_product(product, arguments.rows)
    print(f"\n{time.monotonic() - began_s:.0f} s in all")


if __name__ == "__main__":
    main()
