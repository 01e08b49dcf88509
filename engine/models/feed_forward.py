"""What a layer does with each token alone: one gated MLP, or a mixture of several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.models.linear import Projection

Activate = Callable[[Tensor], Tensor]


def _tanh_gelu(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Activate] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_pytorch_tanh": _tanh_gelu,
}


@dataclass(frozen=True, slots=True)
class FeedForward:
    """`down(activate(gate(x)) * up(x))`; `gate_up` holds the rows of the gate, then of the up
    projection."""

    gate_up: Projection
    down: Projection
    activate: Activate = functional.silu

    def __call__(self, x: Tensor) -> Tensor:
        """[T, hidden] → [T, hidden]"""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(self.activate(gate).mul_(up))


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """Each token goes through `num_chosen` of the experts, weighted by the `router`
    [num_experts, hidden]; tokens of the same expert are computed together.

    `shared`, where there is one, is an expert for every token, weighted by the sigmoid of
    `shared_gate` [1, hidden]."""

    router: Tensor
    experts: tuple[FeedForward, ...]
    num_chosen: int
    normalizes: bool
    shared: FeedForward | None = None
    shared_gate: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """[T, hidden] → [T, hidden]"""
        out = torch.zeros_like(x)
        for expert, rows, weights in self._assignments(x):
            out.index_add_(0, rows, (self.experts[expert](x[rows]) * weights).to(x.dtype))
        if self.shared is not None:
            assert self.shared_gate is not None
            out.add_(functional.linear(x, self.shared_gate).sigmoid() * self.shared(x))
        return out

    def _assignments(self, x: Tensor) -> list[tuple[int, Tensor, Tensor]]:
        """For each expert that was chosen, in ascending order: its rows of `x`, and their
        weights [rows, 1] in float32."""
        scores = functional.linear(x, self.router).softmax(dim=-1, dtype=torch.float32)
        weights, chosen = scores.topk(self.num_chosen, dim=-1)
        if self.normalizes:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=len(self.experts)).tolist()
        weights = weights.flatten()[order, None]
        rows = order // self.num_chosen
        assignments, start = [], 0
        for expert, count in enumerate(counts):
            if count:
                part = slice(start, start + count)
                assignments.append((expert, rows[part], weights[part]))
                start += count
        return assignments
