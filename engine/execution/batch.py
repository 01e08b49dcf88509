"""`StepBatch`: a flat step as tensors on a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.execution.flat_step import FlatStep


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
