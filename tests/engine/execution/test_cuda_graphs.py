"""What can be told of captured graphs without a GPU."""

from __future__ import annotations

import pytest

from engine.execution.cuda_graphs import MAX_MISSES, MIN_FREE, GraphPool
from engine.execution.step_shapes import StepShape

torch = pytest.importorskip("torch")

SHAPES = [StepShape(size, 0, 0, size) for size in (1, 2, 3)]


def test_graphs_that_were_put_off_end_with_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a lack of memory does not end the engine when it has nothing to do."""
    free = [MIN_FREE, MIN_FREE - 1]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free.pop(0), 1 << 40))
    captured: list[StepShape] = []
    pool = GraphPool(lambda shape: None, lambda shape: None)
    monkeypatch.setattr(pool, "_capture", captured.append)
    pool.put_off(SHAPES)
    assert pool.capture_one()
    assert not pool.capture_one()
    assert not pool.capture_one(), "asks for nothing any more"
    assert captured == SHAPES[:1]


def test_a_graph_that_steps_miss_often_is_captured_under_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (MIN_FREE, 1 << 40))
    captured: list[StepShape] = []
    pool = GraphPool(lambda shape: None, lambda shape: None)
    monkeypatch.setattr(pool, "_capture", captured.append)
    pool.put_off(SHAPES)
    for _ in range(MAX_MISSES - 1):
        pool.miss(SHAPES[1])
        pool.miss(StepShape(7, 0, 0, 7))
    assert captured == []
    pool.miss(SHAPES[1])
    pool.miss(SHAPES[1])
    pool.miss(StepShape(7, 0, 0, 7))
    assert captured == [SHAPES[1]]
    assert not pool.is_complete
    while pool.capture_one():
        pass
    assert captured == [SHAPES[1], SHAPES[0], SHAPES[2]]
    assert pool.is_complete
