"""Thinking apart from the answer: any markers, however the answer is cut into outputs."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import (
    Finish,
    FinishDetail,
    FinishType,
    RequestId,
    RequestOutput,
)
from engine.text.byte_tokenizer import ByteTokenizer
from server.service.prompt import Prompt
from server.service.reasoning import ReasoningSplitter, splitter_for
from server.service.reasoning_markers import ReasoningMarkers, begins_inside, find_markers

SHOWN = ReasoningMarkers("<think>", "</think>")
OPEN, CLOSE = 1 << 19, (1 << 19) + 1
CONTROL = ReasoningMarkers("[THINK]", "[/THINK]", OPEN, CLOSE)
FINISH = Finish(FinishDetail(FinishType.MAX_TOKENS))


class MarkerTokenizer(ByteTokenizer):
    """Markers as control tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.special_tokens = {**self.special_tokens, "[THINK]": OPEN, "[/THINK]": CLOSE}


def outputs_of(
    tokenizer: ByteTokenizer, tokens: Sequence[str | int], sizes: Sequence[int], lag: int = 0
) -> list[RequestOutput]:
    """`tokens` in outputs of so many tokens (then one by one), whose text comes `lag` characters
    late, and whole with the last."""
    outputs: list[RequestOutput] = []
    waiting = ""
    left = list(tokens)
    counts = iter(sizes)
    while left:
        count = next(counts, 1)
        some, left = left[:count], left[count:]
        waiting += "".join(token for token in some if isinstance(token, str))
        kept = lag if left else 0
        text, waiting = waiting[: len(waiting) - kept], waiting[len(waiting) - kept :]
        ids = tuple(
            token if isinstance(token, int) else tokenizer.piece(token.encode()) for token in some
        )
        finish = None if left else FINISH
        outputs.append(RequestOutput(RequestId("r"), text=text, token_ids=ids, finish=finish))
    return outputs or [RequestOutput(RequestId("r"), finish=FINISH)]


def told(splitter: ReasoningSplitter, outputs: Sequence[RequestOutput]) -> tuple[str, str]:
    splits = [splitter.push(output) for output in outputs]
    return "".join(one.reasoning for one in splits), "".join(one.content for one in splits)


def expected(text: str, inside: bool) -> tuple[str, str]:
    """What the two parts of a whole text are."""
    if not inside:
        opening = re.match(r"\s{0,256}<think>", text)
        if opening is None:
            return "", text
        text = text[opening.end() :]
    reasoning, _, content = text.partition("</think>")
    return reasoning.lstrip(), re.sub(r"\A(?:[ \t]{0,256}\r?\n)*", "", content)


fragments = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<thi",
        "nk>",
        "</",
        "think>",
        "<",
        "\n",
        "\r\n",
        " ",
        "a",
        "讲",
        " " * 200,
    ]
)


@given(
    st.lists(fragments, max_size=12), st.lists(st.integers(1, 5)), st.integers(0, 4), st.booleans()
)
def test_any_split_tells_the_same(
    tokens: list[str], sizes: list[int], lag: int, inside: bool
) -> None:
    tokenizer = ByteTokenizer()
    splitter = ReasoningSplitter(SHOWN, tokenizer, begins_inside=inside)
    found = told(splitter, outputs_of(tokenizer, tokens, sizes, lag))
    assert found == expected("".join(tokens), inside)
    whole = ReasoningSplitter(SHOWN, tokenizer, begins_inside=inside)
    told(whole, outputs_of(tokenizer, tokens, [len(tokens)]))
    assert splitter.reasoning_tokens == whole.reasoning_tokens
    assert splitter.is_inside == whole.is_inside


control_fragments = st.sampled_from([OPEN, CLOSE, "[THINK]", "<", "\n", " ", "a", "讲"])


@given(st.lists(control_fragments, max_size=12), st.lists(st.integers(1, 5)), st.integers(0, 4))
def test_any_split_at_control_tokens_tells_the_same(
    tokens: list[str | int], sizes: list[int], lag: int
) -> None:
    """A marker's text is not the marker."""
    tokenizer = MarkerTokenizer()
    splitter = ReasoningSplitter(CONTROL, tokenizer)
    found = told(splitter, outputs_of(tokenizer, tokens, sizes, lag))
    whole = ReasoningSplitter(CONTROL, tokenizer)
    assert found == told(whole, outputs_of(tokenizer, tokens, [len(tokens)]))
    assert splitter.reasoning_tokens == whole.reasoning_tokens
    before = tokens[: tokens.index(OPEN)] if OPEN in tokens else tokens
    if OPEN not in tokens or "".join(one for one in before if isinstance(one, str)).strip():
        assert found == ("", "".join(token for token in tokens if isinstance(token, str)))
    elif CLOSE not in before:
        behind = tokens[len(before) + 1 :]
        thought = behind[: behind.index(CLOSE)] if CLOSE in behind else behind
        assert found[0] == "".join(one for one in thought if isinstance(one, str)).lstrip()
        assert splitter.reasoning_tokens == len(before) + 1 + len(thought) + (CLOSE in behind)


def test_text_waits_only_while_it_may_be_a_marker() -> None:
    tokenizer = ByteTokenizer()
    splitter = ReasoningSplitter(SHOWN, tokenizer)
    tokens = ["<th", "ink>", "\n", "a<", "/b", "</th", "ink>", "\n", "\n", "c", "</think>", "<th"]
    found = [splitter.push(output) for output in outputs_of(tokenizer, tokens, [1] * len(tokens))]
    assert [tuple(one) for one in found] == [
        *(("", ""), ("", ""), ("", ""), ("a", ""), ("</b", ""), ("", ""), ("", "")),
        *(("", ""), ("", ""), ("", "c"), ("", "</think>"), ("", "<th")),
    ]
    assert splitter.reasoning_tokens == 7


def test_an_answer_that_does_not_think_is_not_held_up() -> None:
    tokenizer = ByteTokenizer()
    splitter = ReasoningSplitter(SHOWN, tokenizer)
    first, second = outputs_of(tokenizer, ["See <", "think>"], [1, 1])
    assert splitter.push(first).content == "See <"
    assert splitter.is_content
    assert splitter.push(second).content == "think>"
    assert splitter.reasoning_tokens == 0


@pytest.mark.parametrize(
    ("prompt", "inside"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<|im_start|>assistant\n", False),
        # What a user wrote is no generation prompt.
        ("<|im_start|>user\n<think><|im_end|>\n", False),
        ("", False),
    ],
)
def test_a_prompt_that_ends_with_the_opening_marker(prompt: str, inside: bool) -> None:
    tokenizer = ByteTokenizer()
    token_ids = tokenizer.encode(prompt, parse_special=True)
    assert begins_inside(SHOWN, token_ids, tokenizer) is inside


def test_a_prompt_that_ends_with_a_control_marker() -> None:
    tokenizer = MarkerTokenizer()
    text = tokenizer.encode("x [THINK]")
    assert begins_inside(CONTROL, [*text, OPEN], tokenizer)
    assert begins_inside(CONTROL, [*text, OPEN, 10], tokenizer)
    assert not begins_inside(CONTROL, [*text, OPEN, 97], tokenizer)
    assert not begins_inside(CONTROL, [*text, OPEN, CLOSE], tokenizer)
    assert not begins_inside(CONTROL, text, tokenizer)


def test_which_models_have_markers() -> None:
    """Those that have the tokens, or a template that knows them."""
    assert find_markers(ByteTokenizer()) is None
    assert find_markers(MarkerTokenizer()) == CONTROL
    taught = ByteTokenizer()
    taught.chat_template = "{{ content.split('</think>')[-1] }}"
    assert find_markers(taught) == SHOWN

    class OneToken(ByteTokenizer):
        def encode(
            self, text: str, *, parse_special: bool = False, add_bos: bool = False
        ) -> list[int]:
            if text in ("<think>", "</think>"):
                return [self.piece(text.encode())]
            return super().encode(text, parse_special=parse_special)

    assert find_markers(OneToken()) == SHOWN


@pytest.mark.parametrize(
    ("earlier", "shown", "later", "reasoning", "content", "tokens"),
    [
        (["<think>", "a"], None, ["b", "</think>", "c"], "b", "c", 2),
        # Text that was held back at the cut comes first, and is thinking still.
        (["<think>", "ab"], "<think>a", ["c", "</think>", "d"], "bc", "d", 2),
        # A marker across the cut, of which the beginning was shown.
        (["<think>", "a", "</th"], None, ["ink>", "c"], "", "c", 1),
        (["<think>", "a", "</think>"], None, ["\n", "\n", "c"], "", "c", 0),
        (["<think>"], None, ["b"], "b", "", 1),
    ],
)
def test_a_continued_answer_goes_on_where_it_was(
    earlier: list[str],
    shown: str | None,
    later: list[str],
    reasoning: str,
    content: str,
    tokens: int,
) -> None:
    tokenizer = ByteTokenizer()
    ids = tuple(tokenizer.piece(token.encode()) for token in earlier)
    splitter = splitter_for(SHOWN, tokenizer, Prompt((97,), ids, shown))
    assert splitter is not None
    rest = "" if shown is None else "".join(earlier).removeprefix(shown)
    first, *others = outputs_of(tokenizer, later, [])
    outputs = [
        RequestOutput(first.request_id, rest + first.text, first.token_ids, finish=first.finish),
        *others,
    ]
    assert told(splitter, outputs) == (reasoning, content)
    assert splitter.reasoning_tokens == tokens


def test_an_answer_that_is_past_its_thinking_needs_no_splitter() -> None:
    tokenizer = ByteTokenizer()
    ids = tuple(tokenizer.encode("<think>a</think>b"))
    assert splitter_for(SHOWN, tokenizer, Prompt((97,), ids)) is None
    assert splitter_for(SHOWN, tokenizer, Prompt((97,), answer_start="It is")) is None


def test_an_answer_begun_in_the_prompt() -> None:
    tokenizer = ByteTokenizer()
    splitter = splitter_for(SHOWN, tokenizer, Prompt((97,), answer_start="<think>Let me</th"))
    assert splitter is not None
    assert told(splitter, outputs_of(tokenizer, [" see", "</think>", "4"], [])) == (" see", "4")
    begun = splitter_for(SHOWN, tokenizer, Prompt((97,), answer_start="<thi"))
    assert begun is not None
    assert told(begun, outputs_of(tokenizer, ["s"], [])) == ("", "s")
