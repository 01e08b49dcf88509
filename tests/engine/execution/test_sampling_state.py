from __future__ import annotations

import math

import numpy as np

from engine.execution.sampling_state import blocked_ids, slot_state, token_counts
from engine.kernels.triton import sampling_layout as layout
from engine.types import SamplingParams
from tests.engine.execution.plain_sampling import make_item


def test_counts_begin_behind_the_prompt() -> None:
    """A continued answer is output."""
    item = make_item(
        SamplingParams(presence_penalty=1.0), prompt=(7, 7, 2), continued=(7, 5), output=(5, 9)
    )
    state = slot_state(item.sequence, frozenset(), 100)
    assert state.counts is not None
    counts = zip(*(one.tolist() for one in state.counts), strict=True)
    assert dict(counts) == {7: 2, 2: 1, 5: 3, 9: 2}


def test_counts_stop_where_int16_ends() -> None:
    token_ids, counts = token_counts([3] * 40_000 + [4], 1)
    assert token_ids.tolist() == [3, 4]
    assert counts.tolist() == [layout.MAX_COUNT, 2]


def test_no_counts_without_penalties() -> None:
    assert slot_state(make_item(SamplingParams()).sequence, frozenset(), 100).counts is None


def test_blocked_are_the_tokens_that_end_an_answer() -> None:
    """Those that the vocabulary has."""
    params = SamplingParams(min_tokens=2, stop_token_ids=(9, 5, 100))
    assert blocked_ids(params, (1, 200), 100) == (1, 5, 9)
    params = SamplingParams(min_tokens=2, stop_token_ids=(9,), ignore_eos=True)
    assert blocked_ids(params, (1,), 100) == (9,)
    assert blocked_ids(SamplingParams(stop_token_ids=(9,)), (1,), 100) == ()


def test_words() -> None:
    params = SamplingParams(temperature=0.7, top_k=500, top_p=0.9, min_tokens=4, min_p=0.25)
    words = slot_state(make_item(params, prompt=(1, 2)).sequence, frozenset((3,)), 100).words
    numbers = words.view(np.float64)
    assert numbers[layout.TEMPERATURE.value] == float(np.float32(0.7))
    assert numbers[layout.LOG_MIN_P.value] == math.log(0.25)
    assert words[layout.TOP_K.value] == 100
    assert words[layout.MIN_END.value] == 6
    assert words[layout.NUM_BLOCKED.value] == 1
    assert words[layout.FLAGS.value] == layout.IS_ADJUSTED.value
