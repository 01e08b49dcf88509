"""What is given up, in which order, and that nothing is ever given up for no reason."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from server.app.budget import PromptSizes, QuestionTooLongError, fit, report, reserve

counts = st.integers(0, 400)
sizes = st.builds(
    PromptSizes,
    window=st.integers(1, 4000),
    reserved=st.integers(1, 600),
    system=counts,
    question=counts,
    turns=st.lists(counts, max_size=8).map(tuple),
    passages=st.lists(counts, max_size=8).map(tuple),
    summary=st.just(0) | counts,
)


def total(
    sizes: PromptSizes, turns_kept: int, passages_used: int, *, has_summary: bool = False
) -> int:
    return (
        sizes.summary * has_summary
        + sizes.system
        + sizes.question
        + sizes.reserved
        + sum(sizes.turns[len(sizes.turns) - turns_kept :])
        + sum(sizes.passages[:passages_used])
    )


@given(sizes)
def test_the_selection_fits_and_is_the_largest_in_order(sizes: PromptSizes) -> None:
    assume(total(sizes, 0, 0) <= sizes.window)
    selection = fit(sizes)
    kept, used = selection.turns_kept, selection.passages_used
    has_summary = selection.has_summary
    assert total(sizes, kept, used, has_summary=has_summary) <= sizes.window
    if used < len(sizes.passages):
        assert (kept, has_summary) == (0, False), "passages go only after all turns"
        assert total(sizes, 0, used + 1) > sizes.window
    elif sizes.summary and not has_summary:
        assert kept == 0, "the summary goes only after all turns"
        assert total(sizes, 0, used, has_summary=True) > sizes.window
    elif kept < len(sizes.turns):
        assert total(sizes, kept + 1, used, has_summary=has_summary) > sizes.window


@given(sizes)
def test_only_a_question_that_cannot_fit_is_refused(sizes: PromptSizes) -> None:
    if total(sizes, 0, 0) <= sizes.window:
        fit(sizes)
    else:
        with pytest.raises(QuestionTooLongError) as refused:
            fit(sizes)
        for number in (sizes.question, sizes.window, sizes.system, sizes.reserved):
            assert str(number) in str(refused.value)


@given(sizes, st.integers(-3, 3))
def test_the_report_adds_up_to_the_prompt(sizes: PromptSizes, merged: int) -> None:
    assume(total(sizes, 0, 0) <= sizes.window)
    selection = fit(sizes)
    kept, used, has_summary = astuple(selection)
    measured = total(sizes, kept, used, has_summary=has_summary) - sizes.reserved
    context = report(sizes, selection, measured + merged)
    assert (
        context.system + context.history + context.passages + context.question == measured + merged
    )
    lost = sizes.summary > 0 and not has_summary
    assert context.turns_kept + context.turns_dropped == len(sizes.turns) + lost
    assert context.summary == (sizes.summary if has_summary else 0) <= context.history
    assert context.passages_used + context.passages_dropped == len(sizes.passages)


def test_the_oldest_turns_go_first_then_the_last_passages() -> None:
    whole = PromptSizes(1000, 100, 50, 50, turns=(100, 100, 100), passages=(100, 100, 100))
    assert fit(whole).turns_kept == 3
    tight = PromptSizes(600, 100, 50, 50, turns=(100, 100, 100), passages=(100, 100, 100))
    context = report(tight, fit(tight), 500)
    assert (context.turns_kept, context.turns_dropped, context.history) == (1, 2, 100)
    assert (context.passages_used, context.passages_dropped) == (3, 0)
    tighter = PromptSizes(400, 100, 50, 50, turns=(100, 100, 100), passages=(100, 150, 100))
    assert (fit(tighter).turns_kept, fit(tighter).passages_used) == (0, 1)


@pytest.mark.parametrize(
    ("window", "max_tokens", "reserved"), [(4096, 512, 512), (1024, 512, 256), (2, 512, 1)]
)
def test_the_answer_gets_what_it_may_use_but_a_quarter_at_most(
    window: int, max_tokens: int, reserved: int
) -> None:
    assert reserve(window, max_tokens) == reserved
