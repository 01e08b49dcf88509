"""What can be told of captured graphs without a GPU."""

from __future__ import annotations

import pytest

from engine.execution.cuda_graphs import MIN_FREE, GraphPool
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
