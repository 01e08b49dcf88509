"""How much of a card the KV cache gets, and what is said when that is too little."""

from __future__ import annotations

import pytest

from engine.errors import ModelLoadError
from engine.execution.gpu_memory import RESERVE, MemoryPlan

GIB = 1 << 30
PLAN = MemoryPlan(total=100 * GIB, used=20 * GIB, step=2 * GIB, graphs=GIB // 4, utilization=0.9)


def test_the_cache_gets_what_the_rest_leaves() -> None:
    assert PLAN.budget == 90 * GIB
    assert PLAN.for_cache == 68 * GIB - GIB // 4 - RESERVE
    # 1 MiB a token, 64 MiB a block.
    assert PLAN.num_blocks(1 << 20, 64, 1000) == (68 * GIB - GIB // 4 - RESERVE) // (64 << 20)


def test_a_wish_is_rounded_up_to_blocks() -> None:
    assert PLAN.num_blocks(1 << 20, 64, 1000, wanted_tokens=65) == 2


def test_a_sequence_that_cannot_fit_is_told_with_numbers() -> None:
    with pytest.raises(ModelLoadError, match=r"max_model_len 70000 .* 68\.36 GiB .* 67\.50 GiB"):
        PLAN.num_blocks(1 << 20, 64, 70_000)


def test_a_wish_that_does_not_fit_is_told_with_numbers() -> None:
    with pytest.raises(ModelLoadError, match=r"kv_cache_tokens is 100000.*97\.69 GiB.*69120 tok"):
        PLAN.num_blocks(1 << 20, 64, 1000, wanted_tokens=100_000)


def test_a_model_that_fills_the_card_leaves_nothing() -> None:
    full = MemoryPlan(total=100 * GIB, used=95 * GIB, step=GIB, graphs=0, utilization=0.9)
    with pytest.raises(ModelLoadError, match=r"leaves 0\.00 GiB, enough for 0 tokens"):
        full.num_blocks(1 << 10, 64, 100)
