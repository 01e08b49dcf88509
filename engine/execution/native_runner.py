"""`NativeModelRunner`: scheduled steps of a packed model through the native kernels."""

from __future__ import annotations

import torch

from engine.execution.flat_step import flatten
from engine.execution.logit_check import find_failures
from engine.execution.native_step import NativeDecoderStep
from engine.execution.runner import StepResult, SynchronousRunner
from engine.execution.sampler import Sampler
from engine.kv.kv_cache import KVCache
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.types import RequestId


class NativeModelRunner(SynchronousRunner):
    """Implements `ModelRunner`. Owned by the engine thread. What reads the logits is `sampler`;
    another one may be put in its place before the first step."""

    def __init__(self, step: NativeDecoderStep, cache: KVCache, sampler: Sampler) -> None:
        self._step = step
        self._cache = cache
        self.sampler = sampler

    @torch.inference_mode()
    def execute(self, plan: SchedulerOutput) -> StepResult:
        """Forward for all scheduled tokens in one native call; the head only for rows that
        sample."""
        self._cache.copy_blocks(plan.copies)
        step = flatten(plan, self._cache.block_size)
        logits = self._step.run(step)
        if not step.sampling:
            return StepResult([])
        samples = self.sampler.sample(logits, step.sampling)
        return StepResult(samples, find_failures(logits, step.sampling, samples))

    def forget(self, request_id: RequestId) -> None:
        """Drops what the sampler keeps for the request."""
        self.sampler.forget(request_id)
