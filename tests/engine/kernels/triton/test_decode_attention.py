"""Decode attention against a float64 computation, with caches that are NaN where not written."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from engine.kernels.triton.decode_attention import decode_attention
from engine.kernels.triton.decode_work import DecodeConfig, DecodeWork
from tests.support.paged_cases import PagedCase, assert_rows_close, paged_case, reference_rows

CPU = torch.device("cpu")


def make_work(case: PagedCase, num_heads: int, *, min_chunk: int, num_items: int) -> DecodeWork:
    return DecodeWork(
        8,
        num_heads=num_heads,
        num_kv_heads=case.keys.shape[1],
        head_dim=case.keys.shape[2],
        block_size=case.block_size,
        device=CPU,
        config=DecodeConfig(16, 4, 1),
        min_chunk=min_chunk,
        num_items=num_items,
    )


def check_rows(
    case: PagedCase,
    work: DecodeWork,
    rows: Sequence[tuple[int, int]],
    *,
    dtype: torch.dtype = torch.float32,
    window: int | None = None,
    soft_cap: float | None = None,
) -> None:
    """Rows of (slot, context length); length 0 is padding, for which zeros are expected."""
    num_heads, head_dim = work.num_kv_heads * work.group, work.head_dim
    # A view of a wider buffer, as a merged projection gives.
    q = torch.randn(len(rows), num_heads + 3, head_dim).to(dtype)[:, 1 : num_heads + 1]
    out = torch.full((len(rows), num_heads * head_dim), float("nan"), dtype=dtype)
    slots = torch.tensor([slot for slot, _ in rows], dtype=torch.int32)
    lens = torch.tensor([length for _, length in rows], dtype=torch.int32)
    options = {"scale": head_dim**-0.5, "window": window, "soft_cap": soft_cap}
    work.plan(lens)
    decode_attention(q, case.keys, case.values, out, case.tables, slots, lens, work, **options)
    real = lens > 0
    assert (out[~real] == 0).all()
    expected = reference_rows(case, q[real], slots[real], lens[real] - 1, **options)
    assert_rows_close(out[real], expected)
    assert (work.counters == 0).all()


@pytest.mark.parametrize("block_size", [16, 64])
@pytest.mark.parametrize("num_items", [0, 2, 40])
def test_contexts_around_block_edges(block_size: int, num_items: int) -> None:
    lens = [1, block_size - 1, block_size, block_size + 1, 70]
    case = paged_case(
        lens,
        num_kv_heads=2,
        head_dim=16,
        block_size=block_size,
        dtype=torch.float32,
        device="cpu",
        seed=num_items,
    )
    work = make_work(case, 4, min_chunk=16, num_items=num_items)
    rows = [(slot, length) for slot, length in enumerate(lens)]
    padding = [(len(lens), 0)]
    check_rows(case, work, [*rows[:2], *padding, *rows[2:], *padding])


@pytest.mark.parametrize("group", [1, 2, 3, 5, 7, 8])
def test_groups(group: int) -> None:
    case = paged_case(
        [37], num_kv_heads=2, head_dim=16, block_size=16, dtype=torch.float32, device="cpu", seed=1
    )
    check_rows(case, make_work(case, 2 * group, min_chunk=16, num_items=8), [(0, 37)])


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_head_dims(head_dim: int) -> None:
    case = paged_case(
        [19, 33],
        num_kv_heads=1,
        head_dim=head_dim,
        block_size=16,
        dtype=torch.float32,
        device="cpu",
        seed=head_dim,
    )
    work = make_work(case, 2, min_chunk=16, num_items=1)
    check_rows(case, work, [(0, 19), (1, 33)])


def test_more_chunks_than_are_weighed_at_once() -> None:
    case = paged_case(
        [100],
        num_kv_heads=1,
        head_dim=256,
        block_size=16,
        dtype=torch.float32,
        device="cpu",
        seed=2,
    )
    check_rows(case, make_work(case, 8, min_chunk=16, num_items=8), [(0, 100)])


@pytest.mark.parametrize("num_items", [0, 8])
@pytest.mark.parametrize("window", [1, 5, 16, 17, 40, 100])
def test_window(window: int, num_items: int) -> None:
    case = paged_case(
        [50], num_kv_heads=1, head_dim=16, block_size=16, dtype=torch.float32, device="cpu", seed=3
    )
    work = make_work(case, 2, min_chunk=16, num_items=num_items)
    check_rows(case, work, [(0, 50), (0, 49), (0, 16), (0, 1)], window=window)


def test_soft_cap_and_large_scores() -> None:
    case = paged_case(
        [50], num_kv_heads=1, head_dim=16, block_size=16, dtype=torch.float32, device="cpu", seed=4
    )
    case.keys.mul_(100)
    work = make_work(case, 2, min_chunk=16, num_items=1)
    check_rows(case, work, [(0, 50), (0, 20)], soft_cap=30.0)
    check_rows(case, work, [(0, 50), (0, 20)])


def test_rows_of_one_sequence_see_only_their_own_context() -> None:
    case = paged_case(
        [70], num_kv_heads=2, head_dim=16, block_size=16, dtype=torch.float32, device="cpu", seed=5
    )
    work = make_work(case, 4, min_chunk=16, num_items=4)
    check_rows(case, work, [(0, length) for length in (70, 64, 65, 33, 32, 31)])


@pytest.mark.parametrize("cache_dtype", [torch.float16, torch.float8_e4m3fn])
def test_half_precision_and_a_cache_of_8_bits(cache_dtype: torch.dtype) -> None:
    case = paged_case(
        [21, 40],
        num_kv_heads=1,
        head_dim=32,
        block_size=16,
        dtype=cache_dtype,
        device="cpu",
        seed=6,
    )
    work = make_work(case, 4, min_chunk=16, num_items=2)
    check_rows(case, work, [(0, 21), (1, 40)], dtype=torch.float16)


def chunks_of(work: DecodeWork, num_rows: int) -> dict[int, list[int]]:
    """For each row its chunks in item order; asserts that all use one chunk size."""
    items = work.items[: work.num_items(num_rows)].tolist()
    chunks: dict[int, list[int]] = {}
    for row, chunk, _, _ in items:
        if row >= 0:
            chunks.setdefault(row, []).append(chunk)
    assert len({tokens for row, _, tokens, _ in items if row >= 0}) == 1
    return chunks


@pytest.mark.parametrize(
    ("lens", "num_items", "tokens"),
    [
        ([1000], 31, 32),  # 32 items, 63 tiles: 2 tiles each
        ([1000], 9, 112),  # 10 items: 63 tiles by 7
        ([100] * 8, 0, 112),  # an item each: whole contexts
        ([16] * 7 + [400], 5, 80),  # the long one by 5 tiles, the others whole
        ([5], 100, 32),  # never under the smallest chunk
        ([0, 0, 0], 4, 32),
    ],
)
def test_plan(lens: list[int], num_items: int, tokens: int) -> None:
    case = paged_case(
        [1], num_kv_heads=1, head_dim=16, block_size=16, dtype=torch.float32, device="cpu", seed=7
    )
    work = make_work(case, 1, min_chunk=32, num_items=num_items)
    work.plan(torch.tensor([3000] * 8, dtype=torch.int32))  # leaves an older list behind
    work.plan(torch.tensor(lens, dtype=torch.int32))
    assert int(work.items[0, 2]) == tokens
    expected = {row: list(range(max(1, -(-n // tokens)))) for row, n in enumerate(lens)}
    assert chunks_of(work, len(lens)) == expected


def test_what_cannot_work_is_refused() -> None:
    case = paged_case(
        [1], num_kv_heads=2, head_dim=16, block_size=16, dtype=torch.float32, device="cpu", seed=8
    )
    with pytest.raises(ValueError, match="5 heads cannot share 2"):
        make_work(case, 5, min_chunk=16, num_items=1)
    with pytest.raises(ValueError, match="9 rows, but room for 8"):
        make_work(case, 2, min_chunk=16, num_items=1).plan(torch.ones(9, dtype=torch.int32))
    with pytest.raises(ValueError, match="power of two"):
        DecodeWork(1, num_heads=1, num_kv_heads=1, head_dim=16, block_size=24, device=CPU)


def test_whole_chunks_come_first_and_then_the_longest_rest() -> None:
    """Every chunk of every row is some item's, and has a place of its own for its result."""
    lens = [100, 5, 300, 64, 0, 129]
    work = DecodeWork(
        8,
        num_heads=2,
        num_kv_heads=1,
        head_dim=16,
        block_size=16,
        device=torch.device("cpu"),
        config=DecodeConfig(16, 4, 1),
        min_chunk=64,
        num_items=9,
    )
    work.plan(torch.tensor(lens, dtype=torch.int32, device=torch.device("cpu")))
    items = [item for item in work.items[: work.num_items(6)].tolist() if item[0] >= 0]
    size = items[0][2]
    assert {item[2] for item in items} == {size}
    wanted = {(row, chunk) for row, n in enumerate(lens) for chunk in range(max(1, -(-n // size)))}
    assert len(items) == len(wanted)
    assert {(row, chunk) for row, chunk, _, _ in items} == wanted
    assert len({part + chunk for _, chunk, _, part in items}) == len(items)
    tiles = [
        min(size, max(16, -(-(lens[row] - chunk * size) // 16) * 16)) for row, chunk, _, _ in items
    ]
    assert tiles == sorted(tiles, reverse=True)
    assert tiles[0] == size > tiles[-1]
