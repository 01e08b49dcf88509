"""What stays in the prefix cache, on a simulated class of students."""

from __future__ import annotations

import pytest

from engine.kv.block_pool import PROTECTED_SHARE
from tests.support.class_workload import ClassWorkload, hit_rate


@pytest.mark.parametrize(("num_blocks", "gain"), [(150, 1.6), (300, 1.3), (600, 1.08)])
def test_shared_beginnings_outlive_what_is_read_once(num_blocks: int, gain: float) -> None:
    workload = ClassWorkload(num_prompts=1000)
    lru = hit_rate(workload, num_blocks, 0.0)
    assert hit_rate(workload, num_blocks, PROTECTED_SHARE) > gain * lru


def test_a_large_pool_of_conversations_loses_nothing() -> None:
    """Nothing is sent only once here, which is where LRU is at its best."""
    workload = ClassWorkload(num_prompts=1000, one_off_share=0.0)
    assert hit_rate(workload, 1200, PROTECTED_SHARE) >= hit_rate(workload, 1200, 0.0)
