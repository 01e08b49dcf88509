from __future__ import annotations

from random import Random

import pytest

from engine.scheduling.step_cost import StepCost, num_pairs


def observe(cost: StepCost, decodes: int, start: int, count: int, seconds: float) -> None:
    cost.observe(decodes, count, num_pairs(start, count), seconds)


def test_nothing_is_known_before_the_first_step() -> None:
    assert StepCost().prefill_tokens_in(1.0, 0) is None
    assert StepCost().decode_seconds(5) == 0.0


def test_decodes_are_a_line_and_drafts_count() -> None:
    cost = StepCost()
    for tokens in (1, 16, 5, 12):
        observe(cost, tokens, 0, 0, 0.03 + 0.001 * tokens)
    assert cost.decode_seconds(8) == pytest.approx(0.038)


def test_a_prompt_costs_what_a_step_takes_beyond_its_decodes() -> None:
    cost = StepCost()
    for tokens in (1, 16, 5, 12):
        observe(cost, tokens, 0, 0, 0.03 + 0.001 * tokens)
    for count in (32, 500, 128):
        observe(cost, 8, 0, count, 0.038 + 0.0004 * count)
    assert cost.prefill_tokens_in(0.2, 0) == pytest.approx(500, abs=1)
    assert cost.prefill_seconds(0, 100) == pytest.approx(0.04)


def test_chunks_far_inside_a_prompt_are_dearer() -> None:
    """Attention over what is before: at 16,000 tokens a chunk takes five times as long here."""
    cost = StepCost()
    for start, count in ((0, 500), (500, 400), (3000, 200), (6000, 100)):
        seconds = 0.0004 * count + 1e-7 * num_pairs(start, count)
        observe(cost, 0, start, count, seconds)
    deep = cost.prefill_tokens_in(0.2, 16_000)
    assert deep is not None
    assert 0.0004 * deep + 1e-7 * num_pairs(16_000, deep) == pytest.approx(0.2, rel=0.02)
    assert cost.prefill_seconds(16_000, 100) == pytest.approx(0.0405 + 0.16, rel=0.02)


def test_no_time_is_no_token() -> None:
    """Below nothing the formula has a square root of less than nothing."""
    cost = StepCost()
    for start, count in ((0, 10), (90, 10), (4000, 3)):
        observe(cost, 0, start, count, 1e-6 * num_pairs(start, count))
    assert cost.prefill_tokens_in(0.0, 0) == 0
    assert cost.prefill_tokens_in(-1.0, 0) == 0


def test_prompts_that_cost_nothing_are_no_error() -> None:
    """What the first chunk took fades to the smallest number there is, and then to none."""
    cost = StepCost()
    observe(cost, 0, 0, 10, 0.1)
    for _ in range(4000):
        observe(cost, 0, 0, 10, 0.0)
        count = cost.prefill_tokens_in(0.25, 0)
        assert count is None or count >= 25


def test_a_long_time_of_decoding_does_not_forget_what_a_prompt_costs() -> None:
    """With one fading line for both, a first chunk after some hundred decode steps was thought to
    cost what decodes cost, here seven times too much."""
    cost = StepCost()
    for count in (500, 200, 60):
        observe(cost, 0, 0, count, 0.0004 * count)
    for _ in range(1000):
        observe(cost, 16, 0, 0, 0.046)
    assert cost.prefill_tokens_in(0.2, 0) == pytest.approx(500, abs=1)


def test_follows_a_machine_that_became_slower() -> None:
    cost = StepCost()
    for per_token in (0.0004, 0.002):
        for _ in range(100):
            for tokens in (1, 8):
                observe(cost, tokens, 0, 0, 10 * per_token * tokens)
            observe(cost, 0, 0, 200, 200 * per_token)
    assert cost.decode_seconds(4) == pytest.approx(0.08, rel=0.02)
    assert cost.prefill_tokens_in(0.5, 0) == pytest.approx(250, rel=0.02)


def test_noise_moves_it_little() -> None:
    cost, random = StepCost(), Random(1)
    for _ in range(60):
        observe(cost, 8, 0, 0, 0.038 * random.uniform(0.8, 1.4))
        count = random.randrange(50, 500)
        observe(cost, 8, random.randrange(500), count, (0.038 + 0.0004 * count))
    assert cost.prefill_tokens_in(0.2, 300) == pytest.approx(500, rel=0.15)


def test_steps_of_one_size_are_laid_to_their_tokens() -> None:
    """Which overrates the cost of more tokens and so errs on the side of running streams."""
    cost = StepCost()
    for _ in range(10):
        observe(cost, 1, 0, 0, 0.1)
    assert cost.decode_seconds(3) == pytest.approx(0.3)
