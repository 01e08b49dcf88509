"""Top-k, top-p and min-p as one floor a row: tokens below it are out, whatever they are, so that
equally likely tokens share their fate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.execution.logit_rows import Candidates, LogitRows
from engine.types import SamplingParams

_NUM_FEW = 256
"""A top-k up to this is found without sorting a whole row."""


def filter_floors(rows: LogitRows, params: Sequence[SamplingParams]) -> Tensor:
    """The scaled logit (float64, [R]) below which a row's filters leave nothing; -inf where it
    has none."""
    floors = torch.tensor(
        [math.log(one.min_p) if one.min_p > 0.0 else -math.inf for one in params],
        dtype=torch.float64,
        device=rows.logits.device,
    )
    filtered = [row for row, one in enumerate(params) if one.top_k > 0 or one.top_p < 1.0]
    if filtered:
        cut = _sorted_floors(rows, params, filtered)
        floors[filtered] = torch.maximum(floors[filtered], cut)
    return floors


def _sorted_floors(
    rows: LogitRows, params: Sequence[SamplingParams], filtered: list[int]
) -> Tensor:
    """The scaled logit (float64, [F]) at which top-k and then top-p cut each row of `filtered`."""
    device = rows.logits.device
    num_rows, vocab_size = rows.logits.shape
    where = torch.tensor(filtered, device=device)
    top_k = torch.tensor([min(params[row].top_k, vocab_size) for row in filtered], device=device)
    top_p = torch.tensor(
        [params[row].top_p for row in filtered], dtype=torch.float64, device=device
    )
    tails = torch.zeros_like(top_p)
    of_all = torch.nonzero(top_k == 0)[:, 0]  # top-p of everything, the tail too
    if len(of_all):
        tails[of_all] = rows.tail_masses(where[of_all])
    ordered, counts = _padded(rows.head, where, num_rows)
    ordered = ordered.sort(dim=1, descending=True).values
    floors, is_enough = _cut(ordered, counts, tails, top_k, top_p)
    # Where the head is not enough: a peaked distribution with fewer than k tokens in it, or a flat
    # one. The width of what is sorted depends on the row alone, so that its sums do, too.
    is_few = (top_k > 0) & (top_k <= _NUM_FEW)
    for is_short, width in (
        (~is_enough & is_few, min(_NUM_FEW, vocab_size)),
        (~is_enough & ~is_few, vocab_size),
    ):
        short = torch.nonzero(is_short)[:, 0]
        if len(short):
            which = where[short]
            first = rows.scaled(rows.of(which).topk(width, dim=1).values, which)
            nothing = torch.zeros_like(top_p[short])
            floors[short], _ = _cut(
                first, torch.full_like(short, width), nothing, top_k[short], top_p[short]
            )
    return floors


def _padded(head: Candidates, rows: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    """The head's values of `rows` as a matrix filled up with -inf, and their counts [F]."""
    counts = torch.bincount(head.rows, minlength=num_rows)
    starts = counts.cumsum(0) - counts
    places = torch.arange(len(head.rows), device=rows.device) - starts[head.rows]
    counts = counts[rows]
    matrix = head.values.new_full((num_rows, int(counts.max())), -math.inf)
    fits = places < matrix.shape[1]
    matrix[head.rows[fits], places[fits]] = head.values[fits]
    return matrix[rows], counts


def _cut(
    ordered: Tensor, counts: Tensor, tails: Tensor, top_k: Tensor, top_p: Tensor
) -> tuple[Tensor, Tensor]:
    """Floors of top-k and then top-p for rows whose likeliest tokens are `ordered` [F, W]
    (descending, `counts` of them each), with a mass of `tails` beyond; and whether these tokens
    were enough to tell."""
    has_k = top_k > 0
    kth = ordered.gather(1, (top_k.clamp(1, ordered.shape[1]) - 1)[:, None])[:, 0]
    kth = torch.where(has_k, kth, -math.inf)
    masses = ordered.exp().masked_fill_(ordered < kth[:, None], 0.0)
    sums = masses.cumsum(dim=1)
    wanted = top_p * torch.where(has_k, sums[:, -1], sums[:, -1] + tails)
    # The best token has a mass of 1, so at least one is kept.
    num_kept = ((sums - masses) < wanted[:, None]).sum(dim=1)
    nucleus = ordered.gather(1, num_kept[:, None] - 1)[:, 0]
    floors = torch.where(top_p < 1.0, torch.maximum(kth, nucleus), kth)
    is_enough = torch.where(has_k, top_k <= counts, sums[:, -1] >= wanted)
    return floors, is_enough
