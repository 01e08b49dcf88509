"""`TorchModelRunner`: one scheduled step through the model and the sampler."""

from __future__ import annotations

import torch

from engine.execution.batch import build_batch
from engine.execution.runner import StepResult
from engine.execution.sampler import Sampler
from engine.kernels.attention import create_attention
from engine.kv.kv_cache import KVCache
from engine.models.decoder import Decoder
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.types import RequestId


class TorchModelRunner:
    """Implements `ModelRunner`. Owned by the engine thread."""

    def __init__(self, model: Decoder, cache: KVCache) -> None:
        self._model = model
        self._cache = cache
        self._sampler = Sampler()

    @torch.inference_mode()
    def execute(self, plan: SchedulerOutput) -> StepResult:
        """Forward for all scheduled tokens; the head only for rows that sample."""
        self._cache.copy_blocks(plan.copies)
        batch = build_batch(plan, self._cache.block_size, self._model.device)
        attention = create_attention("fused", self._cache, batch.layout)
        hidden = self._model.forward(batch.input_ids, batch.positions, attention)
        if not batch.sampling:
            return StepResult([])
        logits = self._model.compute_logits(hidden[batch.sample_rows])
        return StepResult(self._sampler.sample(logits, batch.sampling))

    def forget(self, request_id: RequestId) -> None:
        """Drops what the sampler keeps for the request."""
        self._sampler.forget(request_id)
