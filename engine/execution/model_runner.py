"""`TorchModelRunner`: one scheduled step through the model and the sampler."""

from __future__ import annotations

import torch

from engine.execution.batch import build_batch
from engine.execution.flat_step import FlatStep, flatten
from engine.execution.logit_check import find_failures
from engine.execution.runner import StepResult, SynchronousRunner
from engine.execution.sampler import Sampler
from engine.kernels.attention import Attention, create_attention
from engine.kernels.layout import build_layout
from engine.kernels.native.attention import NativeAttention
from engine.kernels.native.library import NativeEngine
from engine.kv.kv_cache import KVCache
from engine.models.causal_model import CausalModel
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.types import RequestId


class TorchModelRunner(SynchronousRunner):
    """Implements `ModelRunner`. Owned by the engine thread. What reads the logits is `sampler`;
    another one may be put in its place before the first step, and so may another `model`."""

    def __init__(
        self,
        model: CausalModel,
        cache: KVCache,
        eos_token_ids: frozenset[int] = frozenset(),
        native: NativeEngine | None = None,
    ) -> None:
        """With `native`, attention is that of the native kernels: `can_attend(cache)` holds."""
        self.model = model
        self._cache = cache
        self.sampler = Sampler(eos_token_ids)
        self._native = native

    @torch.inference_mode()
    def execute(self, plan: SchedulerOutput) -> StepResult:
        """Forward for all scheduled tokens; the head only for rows that sample."""
        self._cache.copy_blocks(plan.copies)
        step = flatten(plan, self._cache.block_size)
        batch = build_batch(step, self.model.device)
        hidden = self.model.forward(batch.input_ids, batch.positions, self._attention(step))
        if not step.sampling:
            return StepResult([])
        logits = self.model.compute_logits(hidden[batch.sample_rows])
        samples = self.sampler.sample(logits, step.sampling)
        return StepResult(samples, find_failures(logits, step.sampling, samples))

    def _attention(self, step: FlatStep) -> Attention:
        if self._native is not None:
            return NativeAttention(self._native, self._cache, step)
        layout = build_layout(step, self._cache.block_size, self.model.device)
        return create_attention("fused", self._cache, layout)

    def forget(self, request_id: RequestId) -> None:
        """Drops what the sampler keeps for the request."""
        self.sampler.forget(request_id)
