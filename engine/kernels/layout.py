"""`build_layout`: a flat step as attention under torch wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.kernels.attention import AttentionLayout, SequenceSpan

if TYPE_CHECKING:
    from engine.execution.flat_step import FlatStep


def build_layout(step: FlatStep, block_size: int, device: torch.device) -> AttentionLayout:
    """The step on `device`: runs of slots where blocks lie in order, lists of slots elsewhere."""
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
