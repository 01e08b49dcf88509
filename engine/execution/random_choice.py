"""Draws one token for each row of a batch: temperature, top-k, top-p, min-p and Gumbel-max, all
rows at once.

The Gumbel-max rule: the token with the largest sum of (logit / temperature) and its own standard
Gumbel noise follows the softmax distribution. Each filter keeps the tokens at or above a floor, so
a row's filters come down to one number, and tokens that are equally likely share their fate.

Only the head of a row (see `LogitRows`) is sorted and given noise token by token. The tail is one
candidate of its whole mass (the maximum of Gumbel variables is a Gumbel variable at the log of the
summed masses), and only where that wins does a second round draw within the tail. This is the same
distribution, for a fraction of the work on a large vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.execution.filters import filter_floors
from engine.execution.keyed_noise import gumbel
from engine.execution.logit_rows import Candidates, LogitRows
from engine.types import SamplingParams

_TAIL = -1
"""The token id that stands for the tail in the noise."""


def choose_tokens(logits: Tensor, params: Sequence[SamplingParams], keys: Tensor) -> Tensor:
    """Draws a token id (int64, [R]) for each row of `logits` [R, vocab] float32, by the row's
    `params`, whose temperature is not 0, and its key of `draw_key` in `keys` [R] int64. Rows
    with NaN or infinite logits give some token of the vocabulary."""
    rows = LogitRows(logits, [one.temperature for one in params])
    head = rows.head
    floors = filter_floors(rows, params)
    is_cut = floors > -math.inf
    if bool(is_cut.any()):
        head = head.kept(head.values >= floors[head.rows])
    best, chosen = _best(head, keys)
    # The tail's noise is known before its mass, and no mass is more than all tokens at its edge.
    tails = gumbel(keys, torch.full_like(keys, _TAIL))
    most = math.log(logits.shape[1]) + rows.edges
    in_question = torch.nonzero((floors <= rows.edges) & (most + tails > best))[:, 0]
    if len(in_question):
        masses = _tail_masses(rows, floors, is_cut, in_question)
        wins = masses.log() + tails[in_question] > best[in_question]
        winners = in_question[wins]
        if len(winners):
            tail = _tail(rows, floors, winners)
            _, chosen[winners] = _best(tail, keys[winners])
    return chosen


def _best(candidates: Candidates, keys: Tensor) -> tuple[Tensor, Tensor]:
    """The largest perturbed value of each row (float64, [R]; -inf without candidates) and its
    token id (int64, [R])."""
    rows, token_ids = candidates.rows, candidates.token_ids
    scores = candidates.values + gumbel(keys[rows], token_ids)
    best = torch.full(keys.shape, -math.inf, dtype=torch.float64, device=keys.device)
    best.scatter_reduce_(0, rows, scores, "amax")
    wins = scores == best[rows]
    chosen = torch.zeros_like(keys)
    chosen[rows[wins]] = token_ids[wins]
    return best, chosen


def _tail_masses(rows: LogitRows, floors: Tensor, is_cut: Tensor, which: Tensor) -> Tensor:
    """Of what the filters leave of the tails of rows `which`, float64."""
    if not bool(is_cut[which].any()):
        return rows.tail_masses(which)
    # So low a floor is rare, and leaves a part of the tail.
    masses = torch.zeros(len(which), dtype=torch.float64, device=which.device)
    masses[~is_cut[which]] = rows.tail_masses(which[~is_cut[which]])
    cut = which[is_cut[which]]
    tail = _tail(rows, floors, cut)
    masses[is_cut[which]] = torch.zeros_like(floors[cut]).scatter_add_(
        0, tail.rows, tail.values.exp()
    )
    return masses


def _tail(rows: LogitRows, floors: Tensor, which: Tensor) -> Candidates:
    """What the filters leave of the tails of rows `which`, which are counted from 0."""
    logits = rows.of(which)
    scaled = rows.scaled(logits, which)
    mask = (logits <= rows.thresholds[which]) & (scaled >= floors[which, None])
    found, token_ids = torch.nonzero(mask, as_tuple=True)
    return Candidates(found, token_ids, scaled[found, token_ids])
