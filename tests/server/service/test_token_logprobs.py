"""Which tokens are told with which text."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from engine.api import (
    Finish,
    FinishDetail,
    FinishType,
    RequestId,
    RequestOutput,
    TokenLogprobs,
)
from engine.text.byte_tokenizer import ByteTokenizer
from engine.text.detokenizer import Detokenizer
from server.service.token_logprobs import LogprobAligner, TokenEntry, TokenTexts

EOS = 258
Step = tuple[Sequence[bytes | int], str, FinishType | None]
"""Tokens, the text that came with them, and the end."""


def output(
    tokenizer: ByteTokenizer, tokens: Sequence[bytes | int], text: str, end: FinishType | None
) -> RequestOutput:
    token_ids = tuple(one if isinstance(one, int) else tokenizer.piece(one) for one in tokens)
    return RequestOutput(
        RequestId("r"),
        text,
        token_ids,
        finish=None if end is None else Finish(FinishDetail(end)),
        logprobs=tuple(TokenLogprobs(token_id, -0.5) for token_id in token_ids),
    )


def told(
    outputs: Sequence[Step],
) -> list[list[tuple[bytes | int, int]]]:
    """For each output, the entries that came with it: token and offset."""
    tokenizer = ByteTokenizer()
    aligner = LogprobAligner(tokenizer)

    def readable(entry: TokenEntry) -> tuple[bytes | int, int]:
        token_id = entry.logprobs.token_id
        return tokenizer.token_bytes(token_id) or token_id, entry.offset

    return [[readable(entry) for entry in aligner.push(output(tokenizer, *one))] for one in outputs]


def test_plain_text_and_the_end() -> None:
    assert told([([b"Hel"], "Hel", None), ([b"lo"], "lo", None), ([EOS], "", FinishType.EOS)]) == [
        [(b"Hel", 0)],
        [(b"lo", 3)],
        [],
    ]


def test_the_parts_of_a_character_come_with_it() -> None:
    halves: list[Step] = [
        ([b"a", b"\xe8\xae"], "a", None),
        ([b"\xb2b"], "讲b", FinishType.MAX_TOKENS),
    ]
    assert told(halves) == [[(b"a", 0)], [(b"\xe8\xae", 1), (b"\xb2b", 1)]]


def test_an_unfinished_character_at_the_end_was_sampled_all_the_same() -> None:
    cut: list[Step] = [([b"a"], "a", None), ([b"\xe8"], "", FinishType.MAX_TOKENS)]
    assert told(cut) == [[(b"a", 0)], [(b"\xe8", 1)]]


def test_text_that_is_held_back_holds_its_tokens_back() -> None:
    held: list[Step] = [
        ([b"a"], "a", None),
        ([b"EN"], "", None),
        ([b"T"], "ENT", None),
        ([EOS], "", FinishType.EOS),
    ]
    assert told(held) == [[(b"a", 0)], [], [(b"EN", 1), (b"T", 3)], []]


def test_tokens_of_a_stop_string_are_told_as_far_as_they_are_text() -> None:
    stopped: list[Step] = [
        ([b"ab"], "ab", None),
        ([b"cE"], "c", None),
        ([b"ND", b"!"], "", FinishType.STOP_STRING),
    ]
    assert told(stopped) == [[(b"ab", 0)], [(b"cE", 2)], []]


def test_control_tokens_in_the_middle_and_at_the_end() -> None:
    kept: list[Step] = [([257, b"a", 257], "a", None), ([b"b", 256], "b", FinishType.MAX_TOKENS)]
    assert told(kept) == [[(257, 0), (b"a", 0)], [(257, 1), (b"b", 1), (256, 2)]]


@given(
    st.lists(st.sampled_from([b"a", b"EN", b"D", b"\xe8", b"\xae\xb2", b"\xff", "讲E".encode()])),
    st.lists(st.booleans()),
    st.sampled_from([FinishType.EOS, FinishType.MAX_TOKENS]),
)
def test_any_merging_of_outputs_tells_the_same_tokens(
    pieces: list[bytes], cuts: list[bool], end: FinishType
) -> None:
    """And where nothing is cut off they are all tokens, in order, each where its text is."""
    tokenizer = ByteTokenizer()
    detokenizer = Detokenizer(tokenizer.token_bytes, ("END",))
    outputs: list[RequestOutput] = []
    for piece in pieces:
        text, matched = detokenizer.push(tokenizer.piece(piece))
        kind = None if matched is None else FinishType.STOP_STRING
        outputs.append(output(tokenizer, [piece], text, kind))
        if matched is not None:
            break
    else:
        last = [EOS] if end is FinishType.EOS else [b"a"]
        text = "" if end is FinishType.EOS else detokenizer.push(97).text
        outputs.append(output(tokenizer, last, text + detokenizer.flush(), end))
    one_by_one = LogprobAligner(tokenizer)
    entries = [entry for one in outputs for entry in one_by_one.push(one)]
    merging = LogprobAligner(tokenizer)
    merged: list[TokenEntry] = []
    waiting: RequestOutput | None = None
    for index, one in enumerate(outputs):
        waiting = one if waiting is None else waiting.merge(one)
        if index >= len(cuts) or cuts[index] or index == len(outputs) - 1:
            merged += merging.push(waiting)
            waiting = None
    assert merged == entries
    text = "".join(one.text for one in outputs)
    finish = outputs[-1].finish
    assert finish is not None
    ids = [token_id for one in outputs for token_id in one.token_ids]
    if finish.detail.type is FinishType.EOS:
        ids.pop()
    found = [entry.logprobs.token_id for entry in entries]
    if finish.detail.type is FinishType.STOP_STRING:
        assert found == ids[: len(found)]
        assert all(entry.offset < len(text) for entry in entries)
    else:
        assert found == ids
    for entry in entries:
        data = tokenizer.token_bytes(entry.logprobs.token_id)
        if data.isascii() and finish.detail.type is not FinishType.STOP_STRING:
            # Its own characters follow an unfinished one that it proves to be broken.
            assert data.decode() in text[entry.offset : entry.offset + len(data) + 3]


def test_both_shapes() -> None:
    tokenizer = ByteTokenizer()
    half = tokenizer.piece(b"\xe8\xae")
    entries = [
        TokenEntry(TokenLogprobs(97, -0.5, ((97, -0.5), (258, -2.0))), 0),
        TokenEntry(TokenLogprobs(half, -3.0, ((98, -0.1), (99, -0.2))), 1),
    ]
    texts = TokenTexts(tokenizer)
    assert texts.chat(entries) == {
        "content": [
            {
                "token": "a",
                "logprob": -0.5,
                "bytes": [97],
                "top_logprobs": [
                    {"token": "a", "logprob": -0.5, "bytes": [97]},
                    {"token": "<|im_end|>", "logprob": -2.0, "bytes": None},
                ],
            },
            {
                "token": "\ufffd",
                "logprob": -3.0,
                "bytes": [0xE8, 0xAE],
                "top_logprobs": [
                    {"token": "b", "logprob": -0.1, "bytes": [98]},
                    {"token": "c", "logprob": -0.2, "bytes": [99]},
                ],
            },
        ],
        "refusal": None,
    }
    assert texts.text(entries) == {
        "tokens": ["a", "bytes:\\xe8\\xae"],
        "token_logprobs": [-0.5, -3.0],
        "top_logprobs": [
            {"a": -0.5, "<|im_end|>": -2.0},
            {"b": -0.1, "c": -0.2, "bytes:\\xe8\\xae": -3.0},
        ],
        "text_offset": [0, 1],
    }
    assert texts.text([TokenEntry(TokenLogprobs(97, -0.5), 0)])["top_logprobs"] is None
