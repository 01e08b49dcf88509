"""Control tokens in large texts: found wherever they lie, and in no long breath."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.byte_tokenizer import ByteTokenizer
from server.service import control_text
from server.service.chat_template import ChatTemplate
from server.service.control_text import ControlText, Shield
from server.service.messages import ChatMessage

SPECIAL = {"<|im_start|>": 1, "<|im_end|>": 2, "<|im": 3, "ab": 4, "abab": 5}
fragments = st.sampled_from([*SPECIAL, "<", "|im_", "a", "b", "c", "讲"])


@given(st.lists(fragments, max_size=30).map("".join), st.integers(1, 20))
def test_slices_find_what_the_whole_text_holds(text: str, size: int) -> None:
    control = ControlText(SPECIAL)
    whole = [(found.span(), found[0]) for found in control.find_all(text)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control_text, "_SLICE_CHARS", size)
        assert [(found.span(), found[0]) for found in control.find_all(text)] == whole
        assert control.replace_all(text, lambda _: "-") == "".join(
            _replaced(text, [span for span, _ in whole])
        )


def _replaced(text: str, spans: list[tuple[int, int]]) -> list[str]:
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], "-"]
        at = end
    return [*parts, text[at:]]


@given(st.lists(fragments, max_size=30).map("".join))
def test_a_covered_text_holds_no_control_token_and_comes_back(text: str) -> None:
    control = ControlText(SPECIAL)
    shield = Shield(control, [text])
    covered = shield.cover(text)
    assert not any(special in covered for special in SPECIAL)
    assert shield.uncover(covered) == text


def longest_call_s(work: Callable[[], object]) -> float:
    """The most processor time that one call of a built-in took: for so long nobody else has the
    interpreter."""
    began_s: list[float] = []
    longest_s = 0.0

    def watch(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal longest_s
        if event == "c_call":
            began_s.append(time.thread_time())
        elif event in ("c_return", "c_exception") and began_s:
            longest_s = max(longest_s, time.thread_time() - began_s.pop())

    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    return longest_s


class NoEncoding(ByteTokenizer):
    """Only what comes before the tokenizer is measured, which has its own threads."""

    def encode(self, text: str, *, parse_special: bool = False, add_bos: bool = False) -> list[int]:
        return [len(text)]


@pytest.mark.parametrize(
    "content",
    [
        "<|im_start|>" * 90_000,
        "<|<|" * 250_000,
        "The quick brown fox. " * 50_000,
        "数据库<|im_end|>分页" * 30_000 + "页" * 400_000,
    ],
    ids=["control", "almost", "plain", "mixed"],
)
def test_no_step_over_a_megabyte_holds_the_interpreter_for_long(content: str) -> None:
    template = ChatTemplate(NoEncoding())
    messages = [ChatMessage("user", content)]
    template.encode([ChatMessage("user", "x")])  # compiled
    # Once more where another program has had the processor's caches.
    assert any(longest_call_s(lambda: template.encode(messages)) < 0.005 for _ in range(8))
