"""`find_failures`: the requests for which the model computed no numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.execution.runner import Sample
from engine.scheduling.scheduler_output import ScheduledSequence
from engine.types import RequestId

NOT_FINITE = "The model computed no usable numbers for this request."


def find_failures(
    logits: Tensor, items: Sequence[ScheduledSequence], samples: Sequence[Sample]
) -> dict[RequestId, str]:
    """Those of `items` whose sample rests on a row that has a NaN or plus infinity, or nothing but
    minus infinity, with a sentence for people. `logits` [N, vocab] are the model's own, as for
    `Sampler.sample`, which gave `samples`; rows behind a draft that was wrong do not count."""
    is_finite = torch.isfinite(logits.amax(dim=1))
    if bool(is_finite.all()):
        return {}
    failures: dict[RequestId, str] = {}
    first = 0
    for item, sample in zip(items, samples, strict=True):
        if not bool(is_finite[first : first + len(sample.token_ids)].all()):
            failures[item.sequence.request_id] = NOT_FINITE
        first += 1 + len(item.draft_token_ids)
    return failures
