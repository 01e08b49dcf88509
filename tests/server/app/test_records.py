"""States, what can be continued, and sums over the parts of an answer."""

from __future__ import annotations

import pytest

from engine.api import FinishType, Usage
from server.app.answer_parts import add_timing, add_usage
from server.app.records import is_continuable, notices, state_of
from server.service.usage import usage_json
from server.store.schema import Message

CUT = {
    FinishType.MAX_TOKENS,
    FinishType.CANCELLED,
    FinishType.CLIENT_GONE,
    FinishType.SLOW_CLIENT,
    FinishType.DEADLINE,
    FinishType.SHUTDOWN,
    FinishType.ERROR,
}


@pytest.mark.parametrize("finish", FinishType)
def test_only_cut_answers_with_text_and_room_can_be_continued(finish: FinishType) -> None:
    usage = usage_json(Usage(prompt_tokens=90, completion_tokens=9))
    assert is_continuable(finish, "text", usage, 100) == (finish in CUT)
    assert is_continuable(finish, "", usage, 100) == (finish in CUT), "tokens are enough"
    assert not is_continuable(finish, "", usage_json(Usage(90)), 100)
    assert not is_continuable(finish, "text", usage, 99), "no token more fits"


def test_a_crashed_answer_can_be_continued_without_usage() -> None:
    assert is_continuable("interrupted", "text", None, None)
    assert not is_continuable("not_found", "text", None, None)


@pytest.mark.parametrize(
    ("finish", "state"),
    [
        (FinishType.EOS, "finished"),
        (FinishType.MAX_TOKENS, "finished"),
        (FinishType.CANCELLED, "stopped"),
        (FinishType.SHUTDOWN, "interrupted"),
        (FinishType.CLIENT_GONE, "interrupted"),
        (FinishType.ERROR, "error"),
    ],
)
def test_states(finish: FinishType, state: str) -> None:
    assert state_of(finish) == state


def test_usage_counts_the_prompt_once_and_every_generated_token() -> None:
    parts = [usage_json(Usage(100, 8, 0)), usage_json(Usage(108, 5, 96)), usage_json(Usage(113, 1))]
    whole = None
    for part in parts:
        whole = add_usage(whole, part)
    assert whole is not None
    assert whole["parts"] == parts
    assert (whole["prompt_tokens"], whole["completion_tokens"]) == (100, 14)
    assert whole["total_tokens"] == 114
    assert whole["prompt_cache_hit_tokens"] == 0


def test_timing_keeps_the_first_wait_and_adds_the_rest() -> None:
    first = {"queue_ms": 1.0, "ttft_ms": 50.0, "total_ms": 100.0, "tokens_per_s": 40.0}
    second = {"queue_ms": 2.0, "ttft_ms": 9.0, "total_ms": 30.5, "tokens_per_s": None}
    assert add_timing(None, first) == first
    assert add_timing(first, second) == {
        "queue_ms": 1.0,
        "ttft_ms": 50.0,
        "total_ms": 130.5,
        "tokens_per_s": None,
        "parts": [first, second],
    }


def test_each_loss_is_told_in_both_languages() -> None:
    message = Message(
        finish_detail={"type": "context_window"},
        context={"window": 2048, "turns_dropped": 2, "passages_used": 5, "passages_dropped": 3},
    )
    told = {notice["kind"]: notice for notice in notices(message)}
    assert list(told) == ["window_full", "history_cut", "passages_left_out"]
    assert told["passages_left_out"]["en"] == "5 of 8 found passages used."
    assert "8" in told["passages_left_out"]["zh"]
    assert "2,048" in told["window_full"]["zh"]
    assert notices(Message(finish_detail={"type": "eos"}, context=None)) == []
