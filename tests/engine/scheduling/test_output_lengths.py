from __future__ import annotations

from itertools import permutations

import pytest

from engine.scheduling.output_lengths import (
    NUM_REMEMBERED,
    PRIOR_TOKENS,
    OutputLengths,
    growth_reserve,
)


def lengths(*values: int) -> OutputLengths:
    made = OutputLengths()
    for _ in range(NUM_REMEMBERED):
        for value in values:
            made.observe(value)
    return made


def test_before_any_answer_there_is_a_guess() -> None:
    assert OutputLengths().expected_more(0) == PRIOR_TOKENS


def test_the_mean_of_those_that_got_longer() -> None:
    made = lengths(10, 20, 90)
    assert made.expected_more(0) == pytest.approx(40, abs=2)
    assert made.expected_more(10) == pytest.approx(45, abs=2)
    assert made.expected_more(20) == 70


def test_one_that_outlasts_all_is_expected_to_go_on() -> None:
    made = lengths(10)
    assert made.expected_more(10) == 5
    assert made.expected_more(400) == 200


def test_old_answers_are_forgotten() -> None:
    made = lengths(500)
    for _ in range(NUM_REMEMBERED):
        made.observe(8)
    assert made.expected_more(0) == 8


def brute_force(sequences: list[tuple[int, int]], block_size: int) -> int:
    """Lets all grow token by token; who ends gives all blocks back."""
    running = [[blocks, 0, tokens] for blocks, tokens in sequences]
    start = sum(blocks for blocks, _ in sequences)
    peak = start
    for time in range(1, max(tokens for _, tokens in sequences) + 1):
        alive = [item for item in running if item[2] >= time]
        peak = max(peak, sum(item[0] + -(-time // block_size) for item in alive))
    return peak - start


@pytest.mark.parametrize(
    "sequences",
    [
        [(5, 16)],
        [(5, 160), (5, 160)],
        [(40, 8), (3, 300)],
        [(1, 100), (30, 50), (2, 10), (9, 64)],
    ],
)
def test_the_reserve_is_the_most_that_is_ever_missing(sequences: list[tuple[int, int]]) -> None:
    expected = brute_force(sequences, 16)
    for order in permutations(sequences):
        assert growth_reserve(order, 16) == expected


def test_who_ends_early_makes_room_for_who_stays() -> None:
    assert growth_reserve([(40, 8), (3, 300)], 16) == 2, "a block for each until the first ends"
    assert growth_reserve([], 16) == 0
