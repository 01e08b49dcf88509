"""Time products with few rows on an NVIDIA GPU: own kernels beside cuBLAS, in CUDA graphs.

Run from the repository root: `PYTHONPATH=. python scripts/bench_gpu_linear.py`. For each product
of the Qwen3 0.6B and 8B shapes it prints microseconds and TB/s of weights, each graph walking
through so many copies of the weights that the L2 cache does not help; then whole layer chains.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from engine.kernels.triton.skinny_linear import (
    SkinnyConfig,
    choose_config,
    skinny_gate_up,
    skinny_linear,
)

EPS = 1e-6
DTYPE = torch.bfloat16
POOL_BYTES = 1_400_000_000
# A graph's walk: enough to exceed the L2 cache (60 MB) by far, no longer than needed.
WALK_BYTES = 600_000_000
Step = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Product:
    """A product [M, size] by [columns (times 2 when gated), size]."""

    name: str
    columns: int
    size: int
    norm: bool = False
    gated: bool = False
    residual: bool = False

    @property
    def weight_rows(self) -> int:
        return self.columns * (2 if self.gated else 1)

    @property
    def num_bytes(self) -> int:
        return self.weight_rows * self.size * 2


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    hidden: int
    qkv: int
    attention: int
    inner: int
    layers: int
    vocabulary: int = 151_936

    def products(self) -> list[Product]:
        return [
            Product("norm+qkv", self.qkv, self.hidden, norm=True),
            Product("o+residual", self.hidden, self.attention, residual=True),
            Product("norm+gate_up+silu", self.inner, self.hidden, norm=True, gated=True),
            Product("down+residual", self.hidden, self.inner, residual=True),
            Product("norm+lm_head", self.vocabulary, self.hidden, norm=True),
        ]


SHAPES = [
    Shape("0.6B", hidden=1024, qkv=4096, attention=2048, inner=3072, layers=28),
    Shape("8B", hidden=4096, qkv=6144, attention=4096, inner=12288, layers=36),
]
ROW_COUNTS = [1, 2, 4, 8, 16, 32]


def row_configs() -> list[SkinnyConfig]:
    base = SkinnyConfig(False, 4, 512)
    return [
        base,
        replace(base, prefetch=0),
        replace(base, programs=7),
        replace(base, programs=7, prefetch=0),
        replace(base, programs=2, prefetch=64),
        replace(base, block_n=2, programs=6),
        replace(base, block_n=8, programs=3),
        replace(base, block_n=8, block_k=1024, num_warps=8, programs=2),
    ]


def tile_configs() -> list[SkinnyConfig]:
    cuts = [(8, 128), (16, 128), (32, 128), (32, 64), (64, 64)]
    configs = [SkinnyConfig(True, n, k, prefetch=64) for n, k in cuts]
    return [*configs, replace(configs[1], prefetch=0)]


def configs_of(product: Product, rows: int) -> list[SkinnyConfig]:
    """What is tried: at one row both kernels, at more the tiles (and rows at 2 and 4)."""
    default = choose_config(rows, product.columns, product.size // 2, product.gated)
    tiles = tile_configs()
    if rows == 1:
        tried = [*row_configs(), tiles[1]]
    elif rows in (2, 4):
        tried = [row_configs()[0], *tiles[:2]]
    else:
        tried = tiles
    return [default, *(config for config in tried if config != default)]


def describe(config: SkinnyConfig) -> str:
    cut = f"{config.block_n}x{config.block_k} {config.num_warps} warps"
    if config.tensor_cores:
        return f"tile {cut} {config.num_stages} stages pre {config.prefetch}"
    return f"row  {cut} pre {config.prefetch} prog {config.programs}"


def measure(step: Step, copies: int, repeats: int = 7) -> float:
    """Median microseconds of a step, in a graph of `copies` steps."""
    step(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(copies):
            step(index)
    graph.replay()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / copies)
    return float(statistics.median(times))


def attempt(step: Step, copies: int) -> float | None:
    """`measure`, or None with the error printed: one variant must not cost the whole run."""
    try:
        return measure(step, copies)
    except Exception as error:  # noqa: BLE001 - compilers and drivers raise anything
        print(f"    failed: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return None


class Bench:
    """Buffers of one product; its steps take the weights' copies in turn."""

    def __init__(self, product: Product, rows: int, pool: Tensor) -> None:
        self.product = product
        count = product.weight_rows * product.size
        self.copies = max(1, min(pool.numel() // count, -(-WALK_BYTES // product.num_bytes)))
        self.weights = [
            pool[i * count : (i + 1) * count].view(product.weight_rows, product.size)
            for i in range(self.copies)
        ]
        device = pool.device
        self.x = torch.randn(rows, product.size, dtype=DTYPE, device=device)
        self.norm = torch.ones(product.size, dtype=DTYPE, device=device)
        self.out = torch.zeros(rows, product.columns, dtype=DTYPE, device=device)

    def ours(self, config: SkinnyConfig | None, pdl: bool) -> Step:
        product, x, norm, out = self.product, self.x, self.norm, self.out

        def step(index: int) -> object:
            weight = self.weights[index % self.copies]
            if product.gated:
                return skinny_gate_up(
                    x, weight, norm_weight=norm, eps=EPS, out=out, pdl=pdl, config=config
                )
            return skinny_linear(
                x,
                weight,
                residual=out if product.residual else None,
                norm_weight=norm if product.norm else None,
                eps=EPS,
                out=out,
                pdl=pdl,
                config=config,
            )

        return step

    def cublas(self) -> Iterator[tuple[str, Step]]:
        """The product alone, then with what stands around it as torch's own kernels."""
        product, x, norm, out = self.product, self.x, self.norm, self.out
        yield "F.linear alone", lambda i: functional.linear(x, self.weights[i % self.copies])
        if product.residual:
            yield (
                "addmm into residual",
                lambda i: torch.addmm(out, x, self.weights[i % self.copies].T, out=out),
            )
            return

        def whole(index: int) -> object:
            n = functional.rms_norm(x, (product.size,), norm, EPS) if product.norm else x
            y = functional.linear(n, self.weights[index % self.copies])
            if not product.gated:
                return y
            gate, up = y.chunk(2, dim=-1)
            return functional.silu(gate) * up

        yield "F.linear and the rest", whole


def line(label: str, micros: float | None, num_bytes: int) -> str:
    if micros is None:
        return f"    {label:44} failed"
    return f"    {label:44} {micros:8.2f} µs  {num_bytes / micros / 1e6:5.2f} TB/s"


def bench_product(product: Product, rows: int, pool: Tensor, end: float) -> None:
    """Prints all variants of a product; dependent launches for the default and the fastest."""
    print(f"  {product.name} [{product.weight_rows}, {product.size}], {rows} rows", flush=True)
    bench = Bench(product, rows, pool)
    for label, step in bench.cublas():
        print(line(label, attempt(step, bench.copies), product.num_bytes))
    tried = configs_of(product, rows)
    times: dict[SkinnyConfig, float] = {}
    for config in tried:
        if time.monotonic() > end:
            print("    out of time")
            return
        micros = attempt(bench.ours(config, False), bench.copies)
        mark = " (default)" if config == tried[0] else ""
        print(line(describe(config) + mark, micros, product.num_bytes))
        if micros is not None:
            times[config] = micros
    # At one row, every cut as a dependent launch: they were compiled together.
    chosen = tried if rows == 1 else sorted({tried[0], *sorted(times, key=times.__getitem__)[:1]},
                                            key=tried.index)  # fmt: skip
    for config in chosen:
        micros = attempt(bench.ours(config, True), bench.copies)
        print(line(describe(config) + " PDL", micros, product.num_bytes), flush=True)


@triton.jit  # type: ignore[untyped-decorator]
def _stand_in(  # type: ignore[no-untyped-def]
    source, target, size, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    """In attention's place in a chain: the shortest kernel that reads one side and writes."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(source + at, mask=at < size)
    tl.store(target + at, value, mask=at < size)


def stand_in(source: Tensor, target: Tensor, pdl: bool) -> None:
    size = min(source.numel(), target.numel())
    options = {"launch_pdl": True} if pdl else {}
    _stand_in[(triton.cdiv(size, 1024),)](source, target, size, BLOCK=1024, PDL=pdl, **options)


class Chain:
    """All layers of a model and its head, attention replaced by a copy."""

    def __init__(self, shape: Shape, rows: int, device: torch.device) -> None:
        self.shape = shape
        self.layers = [
            [
                torch.empty(p.weight_rows, p.size, dtype=DTYPE, device=device).normal_(0, 0.02)
                for p in shape.products()[:4]
            ]
            for _ in range(shape.layers)
        ]
        self.head = torch.empty(shape.vocabulary, shape.hidden, dtype=DTYPE, device=device)
        self.head.normal_(0, 0.02)
        self.norm = torch.ones(shape.hidden, dtype=DTYPE, device=device)
        self.set_rows(rows)
        self.num_bytes = 2 * (
            self.head.numel() + sum(weight.numel() for layer in self.layers for weight in layer)
        )

    def set_rows(self, rows: int) -> None:
        shape, device = self.shape, self.head.device
        self.hidden = torch.randn(rows, shape.hidden, dtype=DTYPE, device=device)
        self.qkv = torch.empty(rows, shape.qkv, dtype=DTYPE, device=device)
        self.attended = torch.zeros(rows, shape.attention, dtype=DTYPE, device=device)
        self.gated = torch.empty(rows, shape.inner, dtype=DTYPE, device=device)
        self.logits = torch.empty(rows, shape.vocabulary, dtype=DTYPE, device=device)

    def ours(self, pdl: bool, config: SkinnyConfig | None = None, head: bool = True) -> Step:
        """All products by one cut, or each by its default."""

        def step(_: int) -> None:
            def linear(x: Tensor, weight: Tensor, out: Tensor, norm: Tensor | None) -> None:
                residual = out if norm is None else None
                skinny_linear(
                    x,
                    weight,
                    residual=residual,
                    norm_weight=norm,
                    out=out,
                    pdl=pdl,
                    config=config,
                )

            for qkv, o, gate_up, down in self.layers:
                linear(self.hidden, qkv, self.qkv, self.norm)
                stand_in(self.qkv, self.attended, pdl)
                linear(self.attended, o, self.hidden, None)
                skinny_gate_up(
                    self.hidden,
                    gate_up,
                    norm_weight=self.norm,
                    out=self.gated,
                    pdl=pdl,
                    config=config,
                )
                linear(self.gated, down, self.hidden, None)
            if head:
                linear(self.hidden, self.head, self.logits, self.norm)

        return step

    def cublas(self) -> Step:
        size = (self.shape.hidden,)

        def step(_: int) -> None:
            hidden = self.hidden
            for qkv, o, gate_up, down in self.layers:
                n = functional.rms_norm(hidden, size, self.norm, EPS)
                stand_in(functional.linear(n, qkv), self.attended, False)
                torch.addmm(hidden, self.attended, o.T, out=hidden)
                n = functional.rms_norm(hidden, size, self.norm, EPS)
                gate, up = functional.linear(n, gate_up).chunk(2, dim=-1)
                torch.addmm(hidden, functional.silu(gate) * up, down.T, out=hidden)
            functional.linear(functional.rms_norm(hidden, size, self.norm, EPS), self.head)

        return step


def bench_chain(shape: Shape, device: torch.device) -> None:
    chain = Chain(shape, 1, device)
    floor = chain.num_bytes / 4.3e12 * 1000
    print(f"\n{shape.name}: {shape.layers} layers and the head, {chain.num_bytes / 1e9:.2f} GB: "
          f"{floor:.3f} ms at 4.3 TB/s", flush=True)  # fmt: skip
    for rows in ROW_COUNTS:
        chain.set_rows(rows)
        variants: list[tuple[str, Step]] = [
            ("cuBLAS", chain.cublas()),
            ("ours", chain.ours(False)),
            ("ours, PDL", chain.ours(True)),
        ]
        if rows == 1:
            variants.append(("ours, PDL, no head", chain.ours(True, head=False)))
            for config in row_configs()[1:]:
                label = describe(config)
                variants.append((label, chain.ours(False, config)))
                variants.append((f"{label}, PDL", chain.ours(True, config)))
        if rows in (2, 4):
            label = describe(row_configs()[0])
            variants.append((f"{label}, PDL", chain.ours(True, row_configs()[0])))
        for label, step in variants:
            micros = attempt(step, 1)
            if micros is not None:
                print(f"  {rows:2} rows  {label:44} {micros / 1000:7.3f} ms", flush=True)


def bench_gap(device: torch.device) -> None:
    """A chain of kernels that do nothing to speak of: what each launch in a graph costs."""
    source, target = (torch.zeros(200_000, device=device) for _ in range(2))
    for programs in (1, 132):
        for pdl in (False, True):
            part = slice(0, 1024 * programs)
            micros = attempt(lambda _, p=part, d=pdl: stand_in(source[p], target[p], d), 500)  # type: ignore[misc]
            if micros is not None:
                print(f"  copy kernel of {programs:3} programs, PDL {pdl!s:5} {micros:6.2f} µs")


def bench_reads(pool: Tensor) -> None:
    half = pool.numel() // 2
    micros = attempt(lambda _: pool[:half].copy_(pool[half : 2 * half]), 1)
    if micros is not None:
        print(f"  device copy: {half * 4 / micros / 1e6:.2f} TB/s", flush=True)


def variants() -> Iterator[tuple[Product, int, SkinnyConfig, bool]]:
    for shape in SHAPES:
        for product in shape.products():
            for rows in ROW_COUNTS:
                for config in configs_of(product, rows):
                    for pdl in (False, True):
                        yield product, rows, config, pdl


def compile_some(part: int, parts: int) -> int:
    """Launches its share of all variants once, which leaves their binaries in Triton's cache."""
    device = torch.device("cuda")
    pool = torch.empty(1_300_000_000 // 2, dtype=DTYPE, device=device)
    failed = 0
    # Variants of the same kernel lie together: each process takes every parts-th of the different.
    seen: dict[tuple[object, ...], tuple[Product, int, SkinnyConfig, bool]] = {}
    for product, rows, config, pdl in variants():
        block_k = config.block_k * (2 if config.tensor_cores else 1)
        total = product.size if config.tensor_cores else product.size // 2
        built = replace(config, programs=0, prefetch=config.prefetch > 0)
        key = (product.norm, product.gated, product.residual, total % block_k == 0, built, pdl)
        seen.setdefault((*key, rows > 16, total % 16), (product, rows, config, pdl))
    for product, rows, config, pdl in list(seen.values())[part::parts]:
        try:
            Bench(product, rows, pool).ours(config, pdl)(0)
        except Exception:  # noqa: BLE001 - the run itself meets and prints it
            failed += 1
    torch.cuda.synchronize()
    return failed


def precompile(workers: int) -> None:
    begin = time.monotonic()
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            failed = sum(pool.map(compile_some, range(workers), [workers] * workers))
        print(f"compiled in {time.monotonic() - begin:.1f} s, {failed} failed", flush=True)
    except Exception as error:  # noqa: BLE001 - then they are compiled one by one
        print(f"not compiled ahead: {type(error).__name__}: {error}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--workers", type=int, default=12, help="processes that compile ahead")
    parser.add_argument("--seconds", type=float, default=100, help="limit for the single products")
    parser.add_argument("--no-chains", action="store_true")
    arguments = parser.parse_args()
    device = torch.device("cuda")
    begin = time.monotonic()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    if arguments.workers:
        precompile(arguments.workers)
    bench_gap(device)
    if not arguments.no_chains:
        for shape in SHAPES:
            try:
                bench_chain(shape, device)
            except Exception as error:  # noqa: BLE001 - the products are still worth measuring
                print(f"  chain failed: {type(error).__name__}: {str(error)[:300]}", flush=True)
            torch.cuda.empty_cache()
    pool = torch.empty(POOL_BYTES // 2, dtype=DTYPE, device=device).normal_(0, 0.02)
    bench_reads(pool)
    end = time.monotonic() + arguments.seconds
    for rows in arguments.rows:
        for shape in SHAPES:
            print(f"\n{shape.name}, {rows} rows")
            for product in shape.products():
                bench_product(product, rows, pool, end)
    print(f"\n{time.monotonic() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
