"""`StepBatch`: a scheduled step as flat tensors, all sequences one behind the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.kernels.attention import AttentionLayout, SequenceSpan
from engine.scheduling.scheduler_output import ScheduledSequence, SchedulerOutput
from engine.scheduling.sequence import Sequence

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class StepBatch:
    """`input_ids`, `positions`: [T] int64. `sample_rows` [N] int64: the rows whose logits are
    needed: for each of `sampling` in order, the row of its last real token and of its drafts."""

    input_ids: Tensor
    positions: Tensor
    sample_rows: Tensor
    sampling: tuple[ScheduledSequence, ...]
    layout: AttentionLayout


def build_batch(plan: SchedulerOutput, block_size: int, device: torch.device = _CPU) -> StepBatch:
    """Lays the plan out for one forward pass on `device`."""
    input_ids: list[int] = []
    positions, slots, spans = [], [], []
    sample_rows: list[int] = []
    sampling: list[ScheduledSequence] = []
    for item in plan.scheduled:
        end = item.start + item.num_tokens
        query_start = len(input_ids)
        input_ids += item.token_ids
        positions.append(np.arange(item.start, end))
        slots.append(_slots(item.sequence, range(item.start, end), block_size))
        spans.append(_span(item, query_start, block_size, device))
        if item.samples:
            sample_rows += range(len(input_ids) - 1 - len(item.draft_token_ids), len(input_ids))
            sampling.append(item)
    return StepBatch(
        torch.tensor(input_ids, device=device),
        torch.from_numpy(np.concatenate(positions)).to(device),
        torch.tensor(sample_rows, dtype=torch.int64, device=device),
        tuple(sampling),
        AttentionLayout(torch.from_numpy(np.concatenate(slots)).to(device), tuple(spans)),
    )


def _slots(sequence: Sequence, positions: Iterable[int], block_size: int) -> np.ndarray:
    """Slots of the tokens at `positions`, int64."""
    where = np.fromiter(positions, dtype=np.int64)
    blocks = np.asarray(sequence.table.blocks, dtype=np.int64)
    return np.asarray(blocks[where // block_size] * block_size + where % block_size)


def _span(
    item: ScheduledSequence, query_start: int, block_size: int, device: torch.device
) -> SequenceSpan:
    table = item.sequence.table
    context_len = item.start + item.num_tokens
    if table.num_contiguous * block_size >= context_len:
        return SequenceSpan(
            query_start, item.num_tokens, context_len, table.blocks[0] * block_size, None
        )
    slots = torch.from_numpy(_slots(item.sequence, range(context_len), block_size)).to(device)
    return SequenceSpan(query_start, item.num_tokens, context_len, None, slots)
