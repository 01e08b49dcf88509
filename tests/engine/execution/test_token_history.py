from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from engine.execution.token_history import TokenHistory


def state(history: TokenHistory, drafts: Sequence[int] = ()) -> list[dict[int, int]]:
    return [
        dict(zip(token_ids.tolist(), counts.tolist(), strict=True))
        for token_ids, counts in history.each(drafts)
    ]


def wanted(prompt: Sequence[int], output: Sequence[int]) -> dict[int, int]:
    counts = Counter(output)
    return {token_id: counts[token_id] for token_id in {*prompt, *output}}


def test_the_prompt_counts_nothing_and_the_output_everything() -> None:
    history = TokenHistory(4)
    history.read([7, 7, 8, 9, 8, 5, 5])
    assert state(history) == [{7: 0, 8: 1, 9: 0, 5: 2}]
    history.read([7, 7, 8, 9, 8, 5, 5, 5, 1])
    assert state(history) == [{7: 0, 8: 1, 9: 0, 5: 3, 1: 1}]


def test_drafts_count_for_what_follows_them_and_leave_no_trace() -> None:
    history = TokenHistory(1)
    history.read([3, 4])
    before = state(history)
    assert state(history, [9, 4, 9]) == [
        {3: 0, 4: 1},
        {3: 0, 4: 1, 9: 1},
        {3: 0, 4: 2, 9: 1},
        {3: 0, 4: 2, 9: 2},
    ]
    assert state(history) == before
    history.read([3, 4, 6])  # the drafts were wrong
    assert state(history) == [{3: 0, 4: 1, 6: 1}]


def test_any_growth_gives_the_same_counts() -> None:
    """Read in pieces of any size, with drafts in between, right or wrong."""
    chance = random.Random(3)
    for _ in range(60):
        prompt = [chance.randrange(200) for _ in range(chance.choice([0, 1, 90, 300]))]
        output = [chance.randrange(300) for _ in range(200)]
        history = TokenHistory(len(prompt))
        end = 0
        while end < len(output):
            end = min(len(output), end + chance.choice([0, 1, 1, 5, 60]))
            history.read(prompt + output[:end])
            drafts = [chance.randrange(300) for _ in range(chance.choice([0, 3]))]
            assert state(history, drafts) == [
                wanted(prompt, output[:end] + drafts[:count]) for count in range(len(drafts) + 1)
            ]


def test_an_empty_start() -> None:
    history = TokenHistory(2)
    history.read([1, 1])
    assert state(history) == [{1: 0}]
