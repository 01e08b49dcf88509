"""`LogitRows`: the rows of a batch that are drawn at random, their heads and their tails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

HEAD_DEPTH = 12.0
"""In nats. A token below weighs less than 6e-6 of the best one. The same for every row: what is
drawn must not depend on a row's company."""

_LARGE = 1e30
"""Stands for an infinite logit; differences of it stay finite at any temperature."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tokens of all rows, row by row, each [C]. `values`: scaled logits, float64."""

    rows: Tensor
    token_ids: Tensor
    values: Tensor

    def kept(self, mask: Tensor) -> Candidates:
        """Those of `mask` [C]."""
        return Candidates(self.rows[mask], self.token_ids[mask], self.values[mask])


class LogitRows:
    """Logits [R, vocab] float32, and what makes them (logit - largest) / temperature: 0 for a
    row's best token. That is worked out only where it is needed."""

    def __init__(self, logits: Tensor, temperatures: Sequence[float]) -> None:
        largest = logits.amax(dim=1, keepdim=True)
        if not bool(torch.isfinite(largest).all()):
            logits = torch.nan_to_num(logits, nan=-_LARGE, posinf=_LARGE, neginf=-_LARGE)
            largest = logits.amax(dim=1, keepdim=True)
        self.logits = logits
        self._largest = largest
        self._temperatures = torch.tensor(temperatures, dtype=torch.float32, device=logits.device)[
            :, None
        ]
        # The largest itself is above, however small the temperature or coarse its last bit.
        below = torch.nextafter(largest, torch.full_like(largest, -math.inf))
        self.thresholds = torch.minimum(largest - HEAD_DEPTH * self._temperatures, below)
        """[R, 1]: logits above are the head."""
        self.edges = self.scaled(self.thresholds, torch.arange(len(logits), device=logits.device))[
            :, 0
        ]
        """[R] float64: no token of the tail is more than that, scaled; about -`HEAD_DEPTH`."""
        self.head = self._find_head()

    def scaled(self, logits: Tensor, rows: Tensor) -> Tensor:
        """(logit - largest) / temperature, float64, of `logits` [len(rows), …] of `rows`."""
        largest = self._largest.index_select(0, rows).double()
        return (logits.double() - largest) / self._temperatures.index_select(0, rows).double()

    def of(self, rows: Tensor) -> Tensor:
        """The logits of `rows`, [len(rows), vocab]."""
        return self.logits.index_select(0, rows)

    def tail_masses(self, rows: Tensor) -> Tensor:
        """The sum of exp(scaled) over the tail of each of `rows`, float64, [len(rows)]."""
        masses = self.of(rows).sub_(self._largest.index_select(0, rows))
        masses.div_(self._temperatures.index_select(0, rows)).exp_()
        places = torch.full((len(self.logits),), -1, device=rows.device)
        places[rows] = torch.arange(len(rows), device=rows.device)
        places = places[self.head.rows]
        is_asked = places >= 0
        masses[places[is_asked], self.head.token_ids[is_asked]] = 0.0
        return _row_sums(masses)

    def _find_head(self) -> Candidates:
        if self.logits.device.type == "cpu":
            # Five times as fast as torch's on one core.
            above = self.logits.numpy() > self.thresholds.numpy()
            places = torch.from_numpy(np.flatnonzero(above))
        else:
            places = torch.nonzero((self.logits > self.thresholds).view(-1))[:, 0]
        rows = places // self.logits.shape[1]
        token_ids = places - rows * self.logits.shape[1]
        values = self.logits[rows, token_ids].double() - self._largest[rows, 0].double()
        return Candidates(rows, token_ids, values / self._temperatures[rows, 0].double())


def _row_sums(values: Tensor) -> Tensor:
    """Sums of rows, float64, [R]. A single row is summed as one of two: torch splits the sum of
    one row between its threads, and the last bits of a draw would depend on company."""
    if len(values) == 1:
        return values.expand(2, -1).sum(dim=1)[:1].double()
    return values.sum(dim=1).double()
