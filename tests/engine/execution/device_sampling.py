"""A `DeviceSampler` with the rows of a step around it, for tests on a CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.execution.device_sampler import DeviceSampler, SampledRows
from engine.execution.runner import Sample
from engine.kernels.triton.sampling_layout import SamplingLayout
from engine.scheduling.scheduler_output import ScheduledSequence
from engine.types import RequestId

UNWRITTEN = -77

Rows = tuple[Tensor, Tensor, Tensor]
"""Slots, positions and samples."""


class SamplingTrial:
    """`num_slots` requests at most; a request keeps the slot that its name had first."""

    def __init__(
        self,
        vocab_size: int,
        *,
        num_slots: int = 8,
        max_rows: int = 16,
        device: str = "cpu",
        eos_token_ids: Sequence[int] = (),
        layout: SamplingLayout | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.num_slots = num_slots
        self.sampler = DeviceSampler(
            vocab_size=vocab_size,
            num_slots=num_slots,
            max_rows=max_rows,
            device=self.device,
            eos_token_ids=eos_token_ids,
            layout=layout,
        )
        self.out = SampledRows(max_rows, self.device)
        self.last_tokens = self._ints([UNWRITTEN] * (num_slots + 1))
        self.slots: dict[str, int] = {}

    def enter(self, item: ScheduledSequence, slot: int | None = None) -> None:
        name = item.sequence.request_id
        taken = set(self.slots.values())
        free = next(one for one in range(self.num_slots) if one not in taken)
        self.slots[name] = self.slots.get(name, free) if slot is None else slot
        self.sampler.enter(self.slots[name], item.sequence)

    def draw(
        self, logits: Tensor, items: Sequence[ScheduledSequence], num_padding: int = 0
    ) -> tuple[list[Sample], dict[RequestId, str]]:
        """One launch, for new requests behind `enter`. `logits` have a row for each of
        `items`, as for `Sampler.sample`, and `num_padding` rows more."""
        for item in items:
            if item.sequence.request_id not in self.slots:
                self.enter(item)
        self.sampler.upload()
        self.launch(logits, self.rows(items, num_padding))
        tokens, logprobs = self.out.tokens.cpu().numpy(), self.out.logprobs.cpu().numpy()
        return self.sampler.read(tokens, items, range(len(items)), logprobs)

    def rows(self, items: Sequence[ScheduledSequence], num_padding: int = 0) -> Rows:
        """Of a step with `num_padding` rows behind those of `items`."""
        sequences = [item.sequence for item in items]
        blank = [0] * num_padding
        return (
            self._ints(
                [self.slots[one.request_id] for one in sequences] + [self.num_slots] * num_padding
            ),
            self._ints([one.num_tokens - 1 for one in sequences] + blank),
            self._ints([1] * len(items) + blank),
        )

    def launch(self, logits: Tensor, rows: Rows) -> None:
        self.out.tokens.fill_(UNWRITTEN)
        self.out.logprobs.fill_(UNWRITTEN)
        self.sampler.launch(logits.to(self.device), *rows, self.last_tokens, self.out)

    def _ints(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self.device)
