"""Floors of a shape that is small enough to count by hand, on devices with one limit each."""

from __future__ import annotations

import math

import pytest

from scripts.gpu_ceilings import Ceilings
from scripts.gpu_floors import Cost, Floors, Formats, floor_of
from scripts.gpu_work import GPU_WORKS, GpuWork
from scripts.model_shapes import SHAPES, ModelShape

# 16 weights of attention (4 × 2 × 2), 18 of the MLP (3 × 2 × 3), 10 of the head; a token's keys
# and values are 4 elements, and a pair of query and key is 8 operations.
SMALL = ModelShape(2, 1, 1, 1, 2, 3, 5, True)
MOVING = Ceilings("one byte a second", 1.0, math.inf)
COMPUTING = Ceilings("one operation a second", math.inf, 1.0)


def both(work: GpuWork) -> tuple[float, float]:
    return Floors(SMALL, MOVING).work_s(work), Floors(SMALL, COMPUTING).work_s(work)


def test_counts_of_the_small_shape() -> None:
    assert (SMALL.layer_weights, SMALL.head_weights) == (34, 10)
    assert (SMALL.kv_elements, SMALL.attention_flops) == (4, 8)


def test_a_prompt_of_three_tokens() -> None:
    # 44 weights and 3 × 4 elements of 2 bytes; 3 × 68 operations, 20 of the head, 6 pairs.
    assert Floors(SMALL, MOVING).prefill([(0, 3)]) == Cost(112, 272)


def test_a_second_prompt_reuses_what_is_cached() -> None:
    # One more row, its 3 pairs, its head; its key and value, and the 2 tokens that it reads.
    assert Floors(SMALL, MOVING).prefill([(0, 3), (2, 1)]) == Cost(112 + 24, 272 + 68 + 24 + 20)


def test_a_step_takes_the_longer_of_moving_and_computing() -> None:
    assert Floors(SMALL, MOVING).decode_step_s([3, 4]) == 88 + 7 * 8
    assert Floors(SMALL, MOVING).decode_step_s([3, 4], common=2) == 88 + 5 * 8
    assert Floors(SMALL, COMPUTING).decode_step_s([3, 4]) == 2 * 88 + 7 * 8
    both_limited = Ceilings("", 1.0, 2.0)
    assert Floors(SMALL, both_limited).decode_step_s([3, 4]) == 144
    assert Floors(SMALL, Ceilings("", 1.0, 1.0)).decode_step_s([3, 4]) == 232


def test_decode_counts_prompts_and_a_step_less_than_tokens() -> None:
    work = GpuWork("", "", "decode", 2, 1, 2)
    assert both(work) == (104 + 120, 192 + 208)
    assert floor_of(Floors(SMALL, MOVING), work) == 1000 * 224 / 2
    assert Floors(SMALL, MOVING).decode_only_s(work) == 120


def test_what_is_common_is_computed_once_and_read_once_a_step() -> None:
    moved, computed = both(GpuWork("", "", "shared", 2, 3, 2, common_tokens=2))
    assert moved == 136 + (88 + 6 * 8)
    assert computed == 384 + (2 * 88 + 8 * 8)


def test_a_mix_reads_the_weights_as_often_as_its_longest_answer_has_tokens() -> None:
    one = GpuWork("", "", "mix", 1, 100, 100)  # lengths from 100 to 100
    moved, computed = both(one)
    assert moved == 100 * 88 + (100 + 14_850) * 8
    assert computed == 199 * 68 + 100 * 20 + (5050 + 14_850) * 8
    moved_by_two, computed_by_two = both(GpuWork("", "", "mix", 2, 100, 100))
    assert moved_by_two == 2 * moved - 100 * 88
    assert computed_by_two == 2 * computed


def test_eight_bit_floats() -> None:
    weights = Formats.of({"quantization": "fp8"}, "bfloat16")
    assert Floors(SMALL, MOVING, weights).decode_step_s([3]) == 34 + 20 + 3 * 8
    assert Floors(SMALL, COMPUTING, weights).decode_step_s([3]) == 34 + 20 + 3 * 8
    cache = Formats.of({"kv_cache_dtype": "fp8"}, "bfloat16")
    assert Floors(SMALL, MOVING, cache).decode_step_s([3]) == 88 + 3 * 4
    assert Floors(SMALL, MOVING, Formats.of({}, "float32")).decode_step_s([3]) == 176 + 3 * 16


@pytest.mark.parametrize(("name", "floor_ms"), [("qwen3-0.6b", 0.28), ("qwen3-8b", 3.5)])
def test_one_sequence_needs_the_weights_once(name: str, floor_ms: float) -> None:
    ceilings = Ceilings("", 4.3e12, 790e12)
    floor = floor_of(Floors(SHAPES[name], ceilings), GPU_WORKS["decode-1"])
    assert floor == pytest.approx(floor_ms, rel=0.02)
