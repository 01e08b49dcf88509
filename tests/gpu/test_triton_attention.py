"""Paged attention on the card at real shapes, against float64, with NaN wherever nothing may be
read."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from engine.kernels.triton.decode_attention import decode_attention
from engine.kernels.triton.decode_work import DecodeWork
from engine.kernels.triton.paged_attention import write_cache
from engine.kernels.triton.prefill_attention import (
    PrefillConfig,
    prefill_attention,
    prefill_config,
)
from engine.kernels.triton.prefill_tiles import build_tiles
from tests.support.paged_cases import PagedCase, assert_rows_close, paged_case, reference_rows

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = torch.device("cuda")


@dataclass(frozen=True, slots=True)
class Shape:
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype
    cache_dtype: torch.dtype | None = None

    def case(self, lens: Sequence[int], seed: int = 0) -> PagedCase:
        return paged_case(
            lens,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            block_size=self.block_size,
            dtype=self.cache_dtype or self.dtype,
            device="cuda",
            seed=seed,
        )

    def work(self, max_rows: int) -> DecodeWork:
        return DecodeWork(
            max_rows,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            block_size=self.block_size,
            device=CUDA,
            cache_dtype=self.cache_dtype or self.dtype,
        )

    def merged_q(self, rows: int) -> torch.Tensor:
        """Queries as a merged projection leaves them: a view of wider rows."""
        wide = torch.randn(rows, self.num_heads + 2 * self.num_kv_heads, self.head_dim)
        return wide.to(device=CUDA, dtype=self.dtype)[:, : self.num_heads]

    def poisoned_out(self, rows: int) -> torch.Tensor:
        width = self.num_heads * self.head_dim
        return torch.full((rows, width), float("nan"), dtype=self.dtype, device=CUDA)


SHAPES = [
    Shape(16, 8, 128, 64, torch.bfloat16),
    Shape(32, 8, 128, 64, torch.bfloat16),
    Shape(16, 8, 128, 64, torch.float16),
    Shape(16, 8, 128, 64, torch.float32),
    Shape(16, 8, 128, 64, torch.bfloat16, torch.float8_e4m3fn),
    Shape(8, 1, 256, 64, torch.bfloat16),
    Shape(4, 2, 256, 16, torch.float32),
    Shape(14, 2, 64, 128, torch.bfloat16),
    Shape(9, 3, 64, 16, torch.bfloat16),
    Shape(10, 2, 80, 64, torch.float16),
    Shape(12, 12, 96, 32, torch.bfloat16),
    Shape(12, 2, 64, 64, torch.float32),
]
IDS = [
    f"{s.num_heads}-{s.num_kv_heads}-{s.head_dim}-{s.block_size}-{s.cache_dtype or s.dtype}"
    for s in SHAPES
]


def check_decode(
    shape: Shape,
    case: PagedCase,
    rows: Sequence[tuple[int, int]],
    *,
    window: int | None = None,
    soft_cap: float | None = None,
) -> None:
    """Rows of (slot, context length); length 0 is padding."""
    q, out = shape.merged_q(len(rows)), shape.poisoned_out(len(rows))
    slots = torch.tensor([slot for slot, _ in rows], dtype=torch.int32, device=CUDA)
    lens = torch.tensor([length for _, length in rows], dtype=torch.int32, device=CUDA)
    options = {"scale": shape.head_dim**-0.5, "window": window, "soft_cap": soft_cap}
    work = shape.work(len(rows))
    work.plan(lens)
    for _ in range(3):  # as layers do, on one plan
        out.fill_(float("nan"))
        decode_attention(q, case.keys, case.values, out, case.tables, slots, lens, work, **options)
    real = lens > 0
    assert (out[~real] == 0).all()
    expected = reference_rows(case, q[real], slots[real], lens[real] - 1, **options)
    assert_rows_close(out[real], expected)
    assert (work.counters == 0).all()


@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
def test_decode(shape: Shape) -> None:
    lens = [1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000, 16384]
    case = shape.case(lens)
    check_decode(shape, case, [*enumerate(lens), (len(lens), 0)])
    check_decode(shape, case, [(len(lens) - 1, 16384)])
    # Rows of one sequence at successive positions, as drafts are.
    check_decode(shape, case, [(10, length) for length in (1000, 999, 961, 960, 959, 958)])


def test_decode_one_long_context_among_many_short_ones() -> None:
    shape = SHAPES[0]
    lens = [
        int(n) for n in torch.randint(1, 600, (255,), generator=torch.Generator().manual_seed(1))
    ]
    case = shape.case([*lens, 16384])
    check_decode(shape, case, list(enumerate([*lens, 16384])))


@pytest.mark.parametrize("window", [1, 64, 100, 1024])
def test_decode_window_and_soft_cap(window: int) -> None:
    shape = Shape(8, 4, 256, 64, torch.bfloat16)
    case = shape.case([5000, 70])
    check_decode(shape, case, [(0, 5000), (0, 4097), (1, 70), (1, 1)], window=window, soft_cap=20.0)


def test_decode_replays_with_growing_contexts_and_gives_the_same_bits_each_time() -> None:
    """One graph of 8 rows, 3 of them real, over contexts of 100 to 5000 tokens."""
    shape = SHAPES[0]
    case = shape.case([5000, 5000, 5000])
    q, out = shape.merged_q(8), shape.poisoned_out(8)
    slots = torch.tensor([0, 1, 2] + [3] * 5, dtype=torch.int32, device=CUDA)
    lens = torch.zeros(8, dtype=torch.int32, device=CUDA)
    work = shape.work(16)

    def step() -> None:
        work.plan(lens)
        for _ in range(4):
            decode_attention(
                q, case.keys, case.values, out, case.tables, slots, lens, work, scale=0.1
            )

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for length in (100, 255, 256, 257, 1000, 4096, 5000):
        real = [length, max(1, length // 2), length - 1]
        lens.copy_(torch.tensor(real + [0] * 5, dtype=torch.int32))
        out.fill_(float("nan"))
        graph.replay()
        first = out.clone()
        expected = reference_rows(case, q[:3], slots[:3], lens[:3] - 1, scale=0.1)
        assert_rows_close(first[:3], expected)
        assert (first[3:] == 0).all()
        for _ in range(20):
            out.fill_(float("nan"))
            graph.replay()
            assert torch.equal(out, first)
        assert (work.counters == 0).all()


def check_prefill(
    shape: Shape,
    case: PagedCase,
    chunks: Sequence[tuple[int, int]],
    *,
    window: int | None = None,
    soft_cap: float | None = None,
    config: PrefillConfig | None = None,
) -> None:
    """Chunks of (slot, rows): the last rows of the slot's context."""
    config = config or prefill_config(shape.head_dim, shape.dtype, shape.block_size, CUDA)
    counts = [rows for _, rows in chunks]
    starts = [sum(counts[:i]) + 1 for i in range(len(counts))]
    firsts = [case.lens[slot] - rows for slot, rows in chunks]
    total = sum(counts) + 1  # row 0 belongs to nobody
    q, out = shape.merged_q(total), shape.poisoned_out(total)
    tiles = build_tiles(starts, counts, firsts, [slot for slot, _ in chunks], config.tile_size)
    tiles = np.concatenate((tiles, np.zeros((2, 4), dtype=np.int32)))  # padding: no rows
    options = {"scale": shape.head_dim**-0.5, "window": window, "soft_cap": soft_cap}
    prefill_attention(
        q,
        case.keys,
        case.values,
        out,
        case.tables,
        torch.from_numpy(tiles).to(CUDA),
        block_size=shape.block_size,
        config=config,
        **options,
    )
    assert out[0].isnan().all()
    slots = torch.cat([torch.full((rows,), slot) for slot, rows in chunks]).to(CUDA)
    positions = torch.cat(
        [torch.arange(first, first + rows) for first, rows in zip(firsts, counts, strict=True)]
    )
    expected = reference_rows(case, q[1:], slots, positions.to(CUDA), **options)
    assert_rows_close(out[1:], expected)


@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
def test_prefill(shape: Shape) -> None:
    lens = [1, 63, 64, 65, 128, 700, 16384]
    chunks = [(0, 1), (1, 63), (2, 64), (3, 65), (4, 17), (5, 300), (6, 150)]
    check_prefill(shape, shape.case(lens), chunks)


@pytest.mark.parametrize("descriptors", [False, True])
def test_prefill_by_pointers_and_by_descriptors(descriptors: bool) -> None:
    if descriptors and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("tensor descriptors need Hopper")
    shape = SHAPES[0]
    case = shape.case([3500, 129, 2100])
    config = PrefillConfig(128, 64, 8, 3, descriptors)
    check_prefill(shape, case, [(0, 1500), (1, 129), (2, 100)], config=config)


@pytest.fixture
def watchdog() -> Iterator[None]:
    """Ends the process if a kernel never does: the wait for it heeds no signal."""
    faulthandler.dump_traceback_later(100, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.usefixtures("watchdog")
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_prefill_overlapped(head_dim: int, dtype: torch.dtype) -> None:
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("for Hopper")
    shape = Shape(8, 4, head_dim, 128 if head_dim == 64 else 64, dtype)
    config = PrefillConfig(128, 64, 8, 2, True, overlapped=True)
    lens = [1, 63, 64, 65, 128, 129, 192, 700, 3500, 16384]
    chunks = [(0, 1), (1, 63), (2, 64), (3, 65), (4, 17), (5, 129), (6, 1), (7, 300), (8, 700)]
    case = shape.case(lens)
    check_prefill(shape, case, [*chunks, (9, 150)], config=config)
    for _ in range(10):  # ends and is right however the warps are scheduled
        check_prefill(shape, case, chunks, config=config)


@pytest.mark.parametrize("window", [1, 64, 100, 1024])
def test_prefill_window_and_soft_cap(window: int) -> None:
    shape = Shape(8, 4, 256, 64, torch.bfloat16)
    case = shape.case([3000, 200])
    check_prefill(shape, case, [(0, 1000), (1, 200)], window=window, soft_cap=20.0)
    check_prefill(SHAPES[0], SHAPES[0].case([1500]), [(0, 1100)], window=window)


@pytest.mark.parametrize("cache_dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_cache_writes(cache_dtype: torch.dtype) -> None:
    rows, num_kv_heads, head_dim = 37, 3, 80
    k, v = torch.randn(2, rows, 2 * num_kv_heads, head_dim, device=CUDA).bfloat16()[:, :, 1:4]
    keys, values = torch.full((2, 100, num_kv_heads, head_dim), 7.0, device=CUDA).to(cache_dtype)
    where = torch.randperm(100, device=CUDA)[:rows]
    where[::5] = -1
    write_cache(k, v, keys, values, where)
    expected_keys, expected_values = torch.full((2, 100, num_kv_heads, head_dim), 7.0, device=CUDA)
    real = where >= 0
    expected_keys[where[real]] = k[real].to(cache_dtype).float()
    expected_values[where[real]] = v[real].to(cache_dtype).float()
    assert torch.equal(keys.float(), expected_keys)
    assert torch.equal(values.float(), expected_values)
