"""`StepBatch` and `build_layout`: a flat step as tensors on a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.execution.flat_step import FlatStep
from engine.kernels.attention import AttentionLayout, SequenceSpan


@dataclass(frozen=True, slots=True)
class StepBatch:
    """`input_ids`, `positions` [T] and `sample_rows` [N], int64: see `FlatStep`."""

    input_ids: Tensor
    positions: Tensor
    sample_rows: Tensor


def build_batch(step: FlatStep, device: torch.device) -> StepBatch:
    """What a model's forward pass needs."""
    return StepBatch(
        torch.from_numpy(step.token_ids).to(device),
        torch.from_numpy(step.positions).to(device),
        torch.from_numpy(step.sample_rows).to(device),
    )


def build_layout(step: FlatStep, block_size: int, device: torch.device) -> AttentionLayout:
    """What attention under torch needs."""
    spans = tuple(_span(step, index, block_size, device) for index in range(len(step.query_starts)))
    return AttentionLayout(torch.from_numpy(step.slots).to(device), spans)


def _span(step: FlatStep, index: int, block_size: int, device: torch.device) -> SequenceSpan:
    context_len = int(step.context_lens[index])
    start = int(step.block_starts[index])
    blocks = step.blocks[start : start + -(-context_len // block_size)].astype(np.int64)
    place = (int(step.query_starts[index]), int(step.num_queries[index]), context_len)
    if (np.diff(blocks) == 1).all():
        return SequenceSpan(*place, int(blocks[0]) * block_size, None)
    slots = (blocks[:, None] * block_size + np.arange(block_size)).reshape(-1)[:context_len]
    return SequenceSpan(*place, None, torch.from_numpy(slots).to(device))
