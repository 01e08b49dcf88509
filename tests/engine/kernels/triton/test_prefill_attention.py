"""Prefill attention against a float64 computation, and the tiles it works on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.kernels.triton.decode_work import DecodeConfig, DecodeWork
from engine.kernels.triton.paged_attention import PagedAttention, PagedLayout
from engine.kernels.triton.prefill_attention import PrefillConfig, prefill_attention
from engine.kernels.triton.prefill_tiles import build_tiles
from engine.kv.kv_cache import KVCache
from tests.support.paged_cases import PagedCase, assert_rows_close, paged_case, reference_rows

SMALL = PrefillConfig(16, 16, 4, 1, False)


def check_chunks(
    case: PagedCase,
    num_heads: int,
    chunks: Sequence[tuple[int, int]],
    *,
    dtype: torch.dtype = torch.float32,
    window: int | None = None,
    soft_cap: float | None = None,
) -> None:
    """Chunks of (slot, rows): the last rows of the slot's context; one foreign row before each,
    which must stay as it is."""
    head_dim = case.keys.shape[2]
    starts = np.cumsum([1 + (chunks[i - 1][1] if i else 0) for i in range(len(chunks))])
    total = int(starts[-1]) + chunks[-1][1]
    slots = torch.full((total,), -1)
    positions = torch.zeros(total, dtype=torch.int64)
    for start, (slot, rows) in zip(starts.tolist(), chunks, strict=True):
        slots[start : start + rows] = slot
        positions[start : start + rows] = torch.arange(case.lens[slot] - rows, case.lens[slot])
    q = torch.randn(total, num_heads + 2, head_dim).to(dtype)[:, :num_heads]
    out = torch.full((total, num_heads * head_dim), float("nan"), dtype=dtype)
    tiles = build_tiles(
        starts,
        [rows for _, rows in chunks],
        [case.lens[slot] - rows for slot, rows in chunks],
        [slot for slot, _ in chunks],
        SMALL.tile_size,
    )
    tiles = np.concatenate((tiles, np.zeros((2, 4), dtype=np.int32)))  # padding: no rows
    options = {"scale": head_dim**-0.5, "window": window, "soft_cap": soft_cap}
    prefill_attention(
        q,
        case.keys,
        case.values,
        out,
        case.tables,
        torch.from_numpy(tiles),
        block_size=case.block_size,
        config=SMALL,
        **options,
    )
    real = slots >= 0
    assert out[~real].isnan().all()
    expected = reference_rows(case, q[real], slots[real], positions[real], **options)
    assert_rows_close(out[real], expected)


def small_case(
    lens: Sequence[int],
    *,
    num_kv_heads: int = 1,
    head_dim: int = 16,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> PagedCase:
    return paged_case(
        lens,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        block_size=block_size,
        dtype=dtype,
        device="cpu",
        seed=seed,
    )


@pytest.mark.parametrize("block_size", [16, 32])
def test_new_and_continued_chunks(block_size: int) -> None:
    case = small_case([1, 15, 16, 17, 40, 50], num_kv_heads=2, block_size=block_size)
    chunks = [(0, 1), (1, 15), (2, 16), (3, 17), (4, 7), (5, 33)]
    check_chunks(case, 4, chunks)


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_head_dims(head_dim: int) -> None:
    check_chunks(small_case([21], head_dim=head_dim), 2, [(0, 10)])


@pytest.mark.parametrize("group", [1, 3, 8])
def test_groups(group: int) -> None:
    check_chunks(small_case([21], num_kv_heads=2), 2 * group, [(0, 18)])


@pytest.mark.parametrize("window", [1, 3, 16, 20, 33, 90])
def test_window(window: int) -> None:
    check_chunks(small_case([75, 20]), 1, [(0, 40), (1, 20)], window=window)


def test_soft_cap_and_large_scores() -> None:
    case = small_case([35])
    case.keys.mul_(100)
    check_chunks(case, 2, [(0, 20)], soft_cap=30.0)
    check_chunks(case, 2, [(0, 20)], soft_cap=30.0, window=9)
    check_chunks(case, 2, [(0, 20)])


@pytest.mark.parametrize("cache_dtype", [torch.float16, torch.float8_e4m3fn])
def test_half_precision_and_a_cache_of_8_bits(cache_dtype: torch.dtype) -> None:
    case = small_case([35, 12], head_dim=32, dtype=cache_dtype)
    check_chunks(case, 2, [(0, 20), (1, 12)], dtype=torch.float16)


chunk_lists = st.lists(
    st.tuples(st.integers(1, 70), st.integers(0, 90), st.integers(0, 9)), max_size=6
)


@given(chunk_lists, st.sampled_from([1, 16, 32]))
def test_tiles_cover_each_row_once(chunks: list[tuple[int, int, int]], tile_size: int) -> None:
    counts = [rows for rows, _, _ in chunks]
    starts = np.cumsum([0, *counts])[:-1] + 3
    tiles = build_tiles(
        starts, counts, [p for _, p, _ in chunks], [s for *_, s in chunks], tile_size
    )
    assert tiles.dtype == np.int32
    assert tiles.shape[1] == 4
    seen = [
        (row + i, slot, position + i)
        for row, rows, slot, position in tiles.tolist()
        for i in range(rows)
    ]
    expected = [
        (int(start) + i, slot, position + i)
        for start, (rows, position, slot) in zip(starts, chunks, strict=True)
        for i in range(rows)
    ]
    assert sorted(seen) == expected
    assert all(0 < rows <= tile_size for rows in tiles[:, 1].tolist())
    contexts = (tiles[:, 1] + tiles[:, 3]).tolist()
    assert contexts == sorted(contexts, reverse=True)


def test_decodes_and_a_chunk_in_one_step() -> None:
    """`PagedAttention` writes the new keys, except those of slot -1, and attends both kinds."""
    layers, block_size, num_heads, num_kv_heads, head_dim = 2, 16, 4, 2, 16
    case = small_case([30, 17, 41], num_kv_heads=num_kv_heads, head_dim=head_dim, seed=9)
    cache = KVCache(
        num_layers=layers,
        num_blocks=case.keys.shape[0] // block_size,
        block_size=block_size,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    # Two decodes, one padding row, and the last 20 tokens of slot 2.
    slots = torch.tensor([0, 1, 3] + [2] * 20)
    positions = torch.tensor([29, 16, 0, *range(21, 41)])
    real = slots < 3
    where = torch.full((23,), -1)
    for row in real.nonzero()[:, 0].tolist():
        where[row] = case.cache_slots(int(slots[row]), int(positions[row]) + 1)[-1]
    keys, values = cache.layer(1)
    keys.copy_(case.keys)
    values.copy_(case.values)
    qkv = torch.randn(23, num_heads + 2 * num_kv_heads, head_dim)
    q, k, v = qkv[:, :4], qkv[:, 4:6], qkv[:, 6:]
    case.keys[where[real]] = k[real]
    case.values[where[real]] = v[real]
    keys[where[real]] = float("nan")

    lens = torch.tensor([30, 17, 0], dtype=torch.int32)
    work = DecodeWork(
        4,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        block_size=block_size,
        device=torch.device("cpu"),
        config=DecodeConfig(16, 4, 1),
    )
    work.plan(lens)
    tiles = torch.from_numpy(build_tiles([3], [20], [21], [2], 16))
    layout = PagedLayout(where, case.tables, 3, slots[:3].int(), lens, tiles)
    got = PagedAttention(cache, layout, work).attend(1, q, k, v, scale=0.2, soft_cap=5.0)
    expected = reference_rows(case, q[real], slots[real], positions[real], scale=0.2, soft_cap=5.0)
    assert_rows_close(got[real], expected)
    torch.testing.assert_close(keys, case.keys, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(values, case.values, rtol=0, atol=0, equal_nan=True)
