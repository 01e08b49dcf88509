"""How a scheduled step is laid out as rows."""

from __future__ import annotations

from engine.execution.step_rows import MAX_ROW_CHUNK, UNKNOWN_TOKEN, Chunk, lay_out
from engine.scheduling.scheduler_output import ScheduledSequence
from engine.scheduling.sequence import Sequence
from engine.types import GenerationRequest, RequestId, SamplingParams


def item(
    name: str, token_ids: list[int], start: int, num_tokens: int, *, samples: bool = True
) -> ScheduledSequence:
    request = GenerationRequest(RequestId(name), tuple(token_ids), SamplingParams())
    return ScheduledSequence(Sequence(request, arrival_s=0.0), start, num_tokens, samples)


def test_decodes_are_one_row_each() -> None:
    step = lay_out([item("a", [5, 6, 7], 2, 1), item("b", [8, 9], 1, 1)], [4, 0], 64)
    assert step.slots.tolist() == [4, 0]
    assert step.positions.tolist() == [2, 1]
    assert step.token_ids.tolist() == [7, 9]
    assert step.sample_rows.tolist() == [0, 1]
    assert step.num_single == 2
    assert step.chunks == ()
    assert {step.slots.dtype.name, step.token_ids.dtype.name} == {"int32"}


def test_a_token_that_only_the_gpu_knows_is_left_open() -> None:
    pending = ScheduledSequence(item("a", [5, 6, 7], 0, 3).sequence, 3, 1, True, is_pending=True)
    step = lay_out([pending], [1], 64)
    assert step.token_ids.tolist() == [UNKNOWN_TOKEN]
    assert step.positions.tolist() == [3]


def test_short_chunks_are_rows_and_long_ones_come_last() -> None:
    long_prompt = list(range(100, 100 + MAX_ROW_CHUNK + 1))
    step = lay_out(
        [
            item("decode", [1, 2], 1, 1),
            item("long", long_prompt, 0, len(long_prompt)),
            item("short", [7, 8, 9], 1, 2),
            item("cut", [3, 4, 5], 0, 2, samples=False),
        ],
        [0, 1, 2, 3],
        64,
    )
    assert step.num_single == 1 + 2 + 2
    assert step.slots.tolist() == [0, 2, 2, 3, 3, *[1] * len(long_prompt)]
    assert step.positions.tolist() == [1, 1, 2, 0, 1, *range(len(long_prompt))]
    assert step.token_ids.tolist() == [2, 8, 9, 3, 4, *long_prompt]
    assert step.chunks == (Chunk(5, len(long_prompt), 1, 0),)
    # In the plan's order: the decode, the end of the long prompt, the end of the short one.
    assert step.sample_rows.tolist() == [0, 5 + len(long_prompt) - 1, 2]


def test_no_more_single_rows_than_the_largest_graph_has() -> None:
    step = lay_out([item("a", [1, 2, 3], 0, 3), item("b", [4, 5], 0, 2)], [0, 1], 4)
    assert step.num_single == 3
    assert step.chunks == (Chunk(3, 2, 1, 0),)
