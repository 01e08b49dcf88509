"""Buckets of rows; capturing itself needs a device (tests/gpu)."""

from __future__ import annotations

import pytest

from engine.execution.cuda_graphs import GraphPool, bucket_sizes


@pytest.mark.parametrize("max_rows", [1, 3, 8, 9, 64, 100, 256, 300, 1000])
def test_buckets_reach_as_far_as_asked_and_waste_little(max_rows: int) -> None:
    sizes = bucket_sizes(max_rows)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] >= max_rows
    assert all(size < max_rows for size in sizes[:-1])
    for smaller, larger in zip(sizes, sizes[1:], strict=False):
        assert larger <= 2 * smaller
        assert larger - smaller <= max(8, larger // 8)


def test_without_graphs_a_step_runs_at_its_smallest_bucket() -> None:
    ran: list[int] = []
    pool = GraphPool(ran.append, ran.append, 64, is_capturing=False)
    pool.start()
    assert not pool.capture_one()
    assert [pool.bucket_for(count) for count in (1, 3, 17, 64)] == [1, 4, 24, 64]
    pool.launch(24)
    assert ran == [24]
    assert pool.num_captured == 0
