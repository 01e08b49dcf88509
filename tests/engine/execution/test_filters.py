from __future__ import annotations

import math
import random

import pytest
import torch

from engine.execution.filters import filter_floors
from engine.execution.logit_rows import LogitRows
from engine.types import SamplingParams
from tests.engine.execution.plain_sampling import kept_tokens


def floors(logits: torch.Tensor, params: list[SamplingParams]) -> list[float]:
    rows = LogitRows(logits, [one.temperature for one in params])
    found: list[float] = filter_floors(rows, params).tolist()
    return found


def test_a_floor_leaves_what_the_definition_leaves() -> None:
    """Each row by its own parameters: peaked, flat and with ties, top-k beyond the head and beyond
    the vocabulary."""
    chance = random.Random(11)
    params, rows = [], []
    for _ in range(300):
        spread = chance.choice([0.01, 1.0, 6.0, 30.0])
        row = [chance.gauss(0.0, spread) for _ in range(600)]
        if chance.random() < 0.3:
            row = [round(value) for value in row]  # many ties
        rows.append(torch.tensor(row, dtype=torch.float32).tolist())
        params.append(
            SamplingParams(
                temperature=chance.choice([0.5, 1.0, 2.0]),
                top_k=chance.choice([0, 1, 5, 100, 400, 600, 10_000]),
                top_p=chance.choice([1.0, 0.999, 0.9, 0.1]),
                min_p=chance.choice([0.0, 0.0, 0.2, 1.0, 1e-8]),
            )
        )
    found = floors(torch.tensor(rows), params)
    for row, one, floor in zip(rows, params, found, strict=True):
        largest = max(row)
        left = {i for i, v in enumerate(row) if (v - largest) / one.temperature >= floor}
        assert left == set(kept_tokens(row, one)), one


def test_no_filter_has_no_floor() -> None:
    logits = torch.zeros(2, 10)
    assert floors(logits, [SamplingParams(), SamplingParams(min_p=0.5)]) == [
        -math.inf,
        pytest.approx(math.log(0.5)),
    ]
