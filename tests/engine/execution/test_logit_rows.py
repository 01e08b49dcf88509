from __future__ import annotations

import math

import pytest
import torch

from engine.execution.logit_rows import HEAD_DEPTH, LogitRows


def random_logits(num_rows: int, vocab_size: int) -> torch.Tensor:
    chance = torch.Generator().manual_seed(0)
    return torch.randn(num_rows, vocab_size, generator=chance) * 4


def test_head_and_tail_are_the_whole_row() -> None:
    logits, temperatures = random_logits(3, 500), [0.5, 1.0, 2.0]
    rows = LogitRows(logits, temperatures)
    masses = rows.tail_masses(torch.tensor([2, 0]))
    for row, temperature in enumerate(temperatures):
        values = [(v - float(logits[row].max())) / temperature for v in logits[row].tolist()]
        head = {i: value for i, value in enumerate(values) if value > -HEAD_DEPTH}
        mine = rows.head.rows == row
        found = zip(
            rows.head.token_ids[mine].tolist(), rows.head.values[mine].tolist(), strict=True
        )
        assert dict(found) == pytest.approx(head)
        assert float(rows.edges[row]) == pytest.approx(-HEAD_DEPTH, abs=1e-5)
        if row != 1:
            tail = math.fsum(math.exp(value) for value in values if value <= -HEAD_DEPTH)
            assert float(masses[0 if row == 2 else 1]) == pytest.approx(tail, rel=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e30])
def test_the_best_token_is_in_the_head_at_any_temperature(scale: float) -> None:
    """Also where the depth is less than the last bit of the largest logit."""
    logits = random_logits(2, 100) * scale
    rows = LogitRows(logits, [1e-5, 1e-4])
    best = dict(zip(rows.head.rows.tolist(), rows.head.token_ids.tolist(), strict=True))
    assert [best[0], best[1]] == logits.argmax(1).tolist()
    assert bool((rows.edges < 0).all())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_no_number_is_lost_to_one_that_is_none(bad: float) -> None:
    logits = torch.zeros(1, 9)
    logits[0, 4] = bad
    rows = LogitRows(logits, [1.0])
    others = [0, 1, 2, 3, 5, 6, 7, 8]
    assert rows.head.token_ids.tolist() == ([4] if bad == math.inf else others)


def test_masses_do_not_depend_on_company_with_several_threads() -> None:
    """torch splits the sum of a single row between its threads, and rounds otherwise."""
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        logits = random_logits(8, 150_000)
        every = torch.arange(8)
        together = LogitRows(logits, [2.0] * 8).tail_masses(every)
        alone = [LogitRows(logits[row : row + 1], [2.0]).tail_masses(every[:1]) for row in range(8)]
        assert torch.equal(torch.cat(alone), together)
    finally:
        torch.set_num_threads(threads)
