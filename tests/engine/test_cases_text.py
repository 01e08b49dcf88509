"""Cases of faults seen in other servers, in what becomes of tokens: characters in pieces, stop
strings, and how an answer ended. One token a step, and several."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from engine.text.byte_tokenizer import ByteTokenizer
from engine.text.protocol import Tokenizer
from engine.text.tokenizer import HFTokenizer
from engine.types import GenerationRequest, RequestId, SamplingParams
from tests.support.cases import case
from tests.support.drafters import GuessingDrafter, always, make_drafting_core
from tests.support.engines import Collected, collect

SCRIPTED = ("DET-01", "DET-03", "STP-01", "STP-03", "STP-08", "FIN-01", "SSE-01")
PROMPT = (1, 2, 3)


def play(
    played: dict[str, Any], token_ids: list[int], tokenizer: Tokenizer, num_drafts: int
) -> Collected:
    """What a client is sent while the model says `token_ids`, with the case's parameters."""
    given = dict(played["input"]["request"])
    stop = given.pop("stop", ())
    params = SamplingParams(
        temperature=given["temperature"],
        max_tokens=given["max_tokens"],
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
    )

    def model(tokens: list[int]) -> int:
        index = len(tokens) - len(PROMPT)
        return token_ids[index] if index < len(token_ids) else PROMPT[0]

    drafter = GuessingDrafter(model, always(num_drafts), always(99))
    core = make_drafting_core(drafter, model=model, tokenizer=tokenizer)
    core.add(GenerationRequest(RequestId("r"), PROMPT, params))
    got: dict[str, Collected] = {}
    while core.has_work:
        for output in core.step():
            collect(got, output)
            sendable = played["expect"].get("sendable_chars_after_each_token")
            if sendable and got["r"].token_ids:
                assert len(got["r"].text) <= sendable[len(got["r"].token_ids) - 1]
    return got["r"]


def check(got: Collected, expect: dict[str, Any]) -> None:
    finish = got.outputs[-1].finish
    assert finish is not None
    assert got.text in expect["text_any_of"]
    assert finish.reason == expect["finish_reason"]
    assert finish.usage.completion_tokens == expect["sampled_tokens"] == len(got.token_ids)
    for forbidden in expect.get("delta_must_not_contain", ()):
        assert not any(forbidden in output.text for output in got.outputs)


@pytest.mark.parametrize("num_drafts", [0, 1, 2, 9])
@pytest.mark.parametrize("name", SCRIPTED)
def test_scripted_tokens(name: str, num_drafts: int) -> None:
    played, tokenizer = case(name), ByteTokenizer()
    token_ids = [
        tokenizer.piece(bytes.fromhex(token["hex"]))
        if "hex" in token
        else tokenizer.special_tokens[token["special"]]
        for token in played["input"]["stub_emits"]
    ]
    check(play(played, token_ids, tokenizer, num_drafts), played["expect"])


@pytest.mark.parametrize("num_drafts", [0, 3])
def test_word_marks_are_blanks_in_every_delta(num_drafts: int) -> None:
    """DET-05: decoding a piece alone would strip the blank in front of it."""
    played = case("DET-05")
    words = ["\u2581Daenerys", "\u2581is", "\u2581the", "\u2581queen"]
    vocabulary = {"<unk>": 0, **{word: index for index, word in enumerate(words, 1)}}
    backend = Backend(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.add_special_tokens([AddedToken("<|im_end|>", special=True)])
    tokenizer = HFTokenizer(backend.to_str(), {"eos_token": "<|im_end|>"})
    token_ids = tokenizer.encode("Daenerys is the queen")
    assert token_ids == [1, 2, 3, 4]
    assert backend.decode([2]) == "is", "the trap"

    got = play(played, [*token_ids, *tokenizer.eos_token_ids], tokenizer, num_drafts)
    check(got, played["expect"])
    assert got.text == " Daenerys is the queen"
    assert got.text.strip() == tokenizer.decode(token_ids).strip()
