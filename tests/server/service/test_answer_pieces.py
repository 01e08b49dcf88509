"""What is told of one choice's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine.api import (
    Finish,
    FinishDetail,
    FinishType,
    RequestId,
    RequestOutput,
    TokenLogprobs,
)
from engine.text.byte_tokenizer import ByteTokenizer
from server.service.answer_pieces import Piece, PieceReader
from server.service.reasoning import ReasoningSplitter
from server.service.reasoning_markers import ReasoningMarkers
from server.service.token_logprobs import TokenEntry, TokenTexts

MARKERS = ReasoningMarkers("<think>", "</think>")
EOS = 258


def told_tokens(texts: TokenTexts, entries: Sequence[TokenEntry]) -> dict[str, Any]:
    return {"tokens": [texts.text_of(one.logprobs.token_id) for one in entries]}


def output(
    tokenizer: ByteTokenizer,
    tokens: Sequence[str | int],
    text: str | None = None,
    finish: FinishDetail | None = None,
) -> RequestOutput:
    """`text` None: that of the tokens."""
    ids = tuple(
        token if isinstance(token, int) else tokenizer.piece(token.encode()) for token in tokens
    )
    return RequestOutput(
        RequestId("r"),
        "".join(one for one in tokens if isinstance(one, str)) if text is None else text,
        ids,
        finish=None if finish is None else Finish(finish),
        logprobs=tuple(TokenLogprobs(token_id, -1.0) for token_id in ids),
    )


def both_ways(
    outputs: Sequence[RequestOutput],
    tokenizer: ByteTokenizer,
    *,
    thinks: bool = False,
    **options: Any,
) -> Piece:
    """The whole answer; joined pieces are the same."""

    def reader() -> PieceReader:
        splitter = ReasoningSplitter(MARKERS, tokenizer) if thinks else None
        return PieceReader(tokenizer, told_tokens, splitter=splitter, **options)

    whole = reader().collect(outputs)
    streaming = reader()
    pieces = [streaming.push(one) for one in outputs]
    assert "".join(one.text for one in pieces) == whole.text
    assert "".join(one.reasoning for one in pieces) == whole.reasoning
    assert whole.logprobs == {
        "tokens": [token for one in pieces if one.logprobs for token in one.logprobs["tokens"]]
    }
    return whole


@pytest.mark.parametrize("includes_stop", [False, True])
def test_a_stop_string_is_told_where_it_is_wanted(includes_stop: bool) -> None:
    """With it come the tokens that it lies in, as far as they are text."""
    tokenizer = ByteTokenizer()
    detail = FinishDetail(FinishType.STOP_STRING, "END")
    outputs = [output(tokenizer, ["abE"], "ab"), output(tokenizer, ["N", "Dx"], "", detail)]
    whole = both_ways(outputs, tokenizer, includes_stop=includes_stop)
    assert whole.text == ("abEND" if includes_stop else "ab")
    assert whole.logprobs == {"tokens": ["abE", "N", "Dx"] if includes_stop else ["abE"]}


@pytest.mark.parametrize("includes_stop", [False, True])
@pytest.mark.parametrize(("token", "text"), [(65, "A"), (257, "<|im_start|>")])
def test_a_stop_token_is_told_where_it_is_wanted(
    includes_stop: bool, token: int, text: str
) -> None:
    tokenizer = ByteTokenizer()
    detail = FinishDetail(FinishType.STOP_TOKEN, token)
    outputs = [output(tokenizer, ["ab"]), output(tokenizer, [token], "", detail)]
    whole = both_ways(outputs, tokenizer, includes_stop=includes_stop)
    assert whole.text == ("ab" + text if includes_stop else "ab")
    assert whole.logprobs == {"tokens": ["ab", text] if includes_stop else ["ab"]}


def test_the_model_s_own_end_is_no_stop() -> None:
    tokenizer = ByteTokenizer()
    outputs = [output(tokenizer, ["ab", EOS], finish=FinishDetail(FinishType.EOS))]
    whole = both_ways(outputs, tokenizer, includes_stop=True)
    assert (whole.text, whole.logprobs) == ("ab", {"tokens": ["ab"]})


def test_an_echo_stands_in_front_once() -> None:
    tokenizer = ByteTokenizer()
    reader = PieceReader(tokenizer, echo="Say ")
    assert reader.push(output(tokenizer, [])) == Piece("Say ")
    assert reader.push(output(tokenizer, ["it"])) == Piece("it")


def test_probabilities_are_those_of_the_answer_s_own_tokens() -> None:
    """The thinking's, its markers' and the blank lines' are left out."""
    tokenizer = ByteTokenizer()
    outputs = [
        output(tokenizer, ["<think>", "a"]),
        output(tokenizer, ["</th"], ""),
        output(tokenizer, ["ink>", "\n"], "</think>\n"),
        output(tokenizer, ["\n"]),
        output(tokenizer, ["b", "c", EOS], finish=FinishDetail(FinishType.EOS)),
    ]
    whole = both_ways(outputs, tokenizer, thinks=True)
    assert whole == Piece("bc", "a", {"tokens": ["b", "c"]})


def test_tokens_that_wait_with_their_text_are_told_with_it() -> None:
    tokenizer = ByteTokenizer()
    outputs = [
        output(tokenizer, ["\n"]),
        output(tokenizer, ["<th"]),
        output(tokenizer, ["e>"], finish=FinishDetail(FinishType.MAX_TOKENS)),
    ]
    whole = both_ways(outputs, tokenizer, thinks=True)
    assert whole == Piece("\n<the>", "", {"tokens": ["\n", "<th", "e>"]})


def test_what_an_end_in_the_middle_of_the_thinking_says() -> None:
    tokenizer = ByteTokenizer()
    cut = FinishDetail(FinishType.MAX_TOKENS)
    for tokens, told, count in (
        (["<think>", "a"], {"type": "max_tokens", "in": "reasoning"}, 2),
        (["<think>", "a", "</think>"], {"type": "max_tokens"}, 3),
        (["a"], {"type": "max_tokens"}, 0),
    ):
        splitter = ReasoningSplitter(MARKERS, tokenizer)
        reader = PieceReader(tokenizer, splitter=splitter)
        reader.push(output(tokenizer, tokens, finish=cut))
        assert reader.finish_detail(Finish(cut)) == told
        assert reader.reasoning_tokens == count
