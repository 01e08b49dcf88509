from __future__ import annotations

import torch

from engine.execution.batch import build_batch
from engine.execution.flat_step import flatten
from engine.kernels.layout import build_layout
from engine.kv.block_pool import BlockId
from engine.scheduling.scheduler_output import ScheduledSequence, SchedulerOutput
from engine.scheduling.sequence import Sequence
from tests.support.engines import make_request

CPU = torch.device("cpu")


def scheduled(
    tokens: tuple[int, ...], blocks: list[int], start: int, count: int, samples: bool
) -> ScheduledSequence:
    sequence = Sequence(make_request("r", tokens), arrival_s=0.0)
    sequence.table.extend(BlockId(block) for block in blocks)
    return ScheduledSequence(sequence, start, count, samples)


def test_lays_sequences_out_one_behind_the_other() -> None:
    decode = scheduled((10, 11, 12, 13, 14), [7, 2], start=4, count=1, samples=True)
    chunk = scheduled((20, 21, 22, 23, 24, 25), [4, 5], start=1, count=3, samples=False)
    last = scheduled((30, 31), [0], start=0, count=2, samples=True)
    step = flatten(SchedulerOutput((decode, chunk, last)), block_size=4)
    batch, layout = build_batch(step, CPU), build_layout(step, 4, CPU)
    assert batch.input_ids.tolist() == [14, 21, 22, 23, 30, 31]
    assert batch.positions.tolist() == [4, 1, 2, 3, 0, 1]
    assert layout.slot_mapping.tolist() == [8, 17, 18, 19, 0, 1]
    assert batch.sample_rows.tolist() == [0, 5]
    assert step.sampling == (decode, last)
    first, second, third = layout.spans
    assert (first.query_start, first.num_queries, first.context_len) == (0, 1, 5)
    assert first.first_slot is None
    assert first.slots is not None
    assert first.slots.tolist() == [28, 29, 30, 31, 8]
    assert (second.query_start, second.first_slot, second.context_len) == (1, 16, 4)
    assert (third.query_start, third.first_slot, third.slots) == (4, 0, None)
    assert {t.dtype for t in (batch.input_ids, batch.positions, batch.sample_rows)} == {torch.int64}


def test_a_run_that_covers_the_context_is_enough() -> None:
    item = scheduled((1, 2, 3, 4, 5), [3, 9], start=0, count=4, samples=False)
    (span,) = build_layout(flatten(SchedulerOutput((item,)), block_size=4), 4, CPU).spans
    assert span.first_slot == 12
