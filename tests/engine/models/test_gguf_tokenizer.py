"""tokenizer.json out of GGUF metadata."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.gguf_tokenizer import find_end_ids, tokenizer_config, tokenizer_json
from engine.text.tokenizer import HFTokenizer
from tests.support.gguf_files import gguf_tokenizer_metadata

TEXTS = [
    "Paging lets the key value cache grow block by block.",
    "缓存按块分配,调度器每一步都有预算。😀👩‍👩‍👧",
    "def f(x):\n    return x[0]  # 12 + 345\n\n\n",
    "  runs \t of   space \r\n",
    "<|im_start|>user\nhi<|im_end|>\n",
    "",
]

BAD_IDS = (-1, 264, 2**32 - 1, "x", 1.0)


def tokenizer(metadata: dict[str, Any]) -> HFTokenizer:
    return HFTokenizer(json.dumps(tokenizer_json(metadata)), tokenizer_config(metadata))


def test_ids_equal_those_of_the_folder(tiny_model: Callable[[str], Path]) -> None:
    folder = tiny_model("llama")
    ours = tokenizer(gguf_tokenizer_metadata(folder))
    theirs = AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        assert ours.encode(text, parse_special=True) == theirs.encode(
            text, add_special_tokens=False
        )
    assert ours.eos_token == "<|im_end|>"
    assert ours.chat_template == theirs.chat_template
    assert ours.encode("x", add_bos=True) == ours.encode("x")


def byte_level(tokens: list[str], merges: list[str], pre: str, **more: Any) -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        **more,
    }


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("default", ["Ġ", "Ġ12", "a"]),
        ("smollm", ["ĠĠ", "1", "2", "a"]),
        ("qwen2", ["Ġ", "Ġ", "1", "2", "a"]),
        ("llama-bpe", ["Ġ", "Ġ", "12", "a"]),
    ],
)
def test_pre_tokenizers_cut_differently(pre: str, pieces: list[str]) -> None:
    """Blanks and digits show where each kind cuts a text before merging."""
    tokens = ["Ġ", "1", "2", "a", "ĠĠ", "12", "Ġ12", "2a"]
    metadata = byte_level(tokens, ["2 a", "Ġ Ġ", "1 2", "Ġ 12"], pre)
    assert [tokens[i] for i in tokenizer(metadata).encode("  12a")] == pieces


def test_unused_tokens_are_left_out_and_user_defined_ones_are_shown() -> None:
    metadata = byte_level(
        ["a", "<think>", "<eot>", "[PAD3]"],
        [],
        "default",
        **{"tokenizer.ggml.token_type": [1, 4, 3, 5]},
    )
    ours = tokenizer(metadata)
    assert ours.special_tokens == {"<eot>": 2}
    assert ours.encode("a<think>a") == [0, 1, 0]
    assert ours.token_bytes(1) == b"<think>"
    assert ours.token_bytes(2) == b""
    assert ours.vocab_size == 3


def test_unknown_kinds_are_named() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'bert'.*gpt2"):
        tokenizer_json({"tokenizer.ggml.model": "bert"})
    with pytest.raises(UnsupportedModelError, match=r"'tekken'.*llama-bpe"):
        tokenizer_json(byte_level(["a"], [], "tekken"))


def test_end_ids_are_those_named_and_those_known_by_text() -> None:
    metadata = {
        "tokenizer.ggml.tokens": ["<|endoftext|>", "x", "<|eot_id|>", "y", "</s>"],
        "tokenizer.ggml.token_type": [3, 1, 3, 1, 1],
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.eot_token_id": 3,
    }
    assert find_end_ids(metadata) == (0, 1, 2, 3)  # the last is an ordinary token there


SENTENCEPIECE: dict[str, Any] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁a",
        "ab",
        "▁",
        "a",
        "b",
    ],
    "tokenizer.ggml.token_type": [2, 3, 3, *([6] * 256), 1, 1, 1, 1, 1],
    "tokenizer.ggml.scores": [0.0] * 259 + [-1.0, -2.0, -3.0, -4.0, -5.0],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
}


def test_sentencepiece_joins_by_score_and_falls_back_to_bytes() -> None:
    ours = tokenizer(SENTENCEPIECE)
    names = SENTENCEPIECE["tokenizer.ggml.tokens"]
    assert [names[i] for i in ours.encode("ab aba")] == ["▁a", "b", "▁a", "b", "a"]
    assert [names[i] for i in ours.encode("é")] == ["▁", "<0xC3>", "<0xA9>"]
    for text in ("ab é", " ab", "  a", " ", ""):
        assert ours.decode(ours.encode(text)) == text
    assert b"".join(map(ours.token_bytes, ours.encode("ab é"))) == " ab é".encode()


@pytest.mark.parametrize(
    ("flag", "has_bos"), [({}, True), ({"tokenizer.ggml.add_bos_token": False}, False)]
)
def test_sentencepiece_wants_a_bos_unless_it_says_otherwise(
    flag: dict[str, Any], has_bos: bool
) -> None:
    ours = tokenizer({**SENTENCEPIECE, **flag})
    assert (ours.encode("a", add_bos=True)[0] == 1) is has_bos
    assert ours.encode("<s>a", add_bos=True, parse_special=True).count(1) == 1


@pytest.mark.parametrize(
    ("pre", "flag", "num_bos"),
    [
        ("llama-bpe", {}, 1),
        ("llama-bpe", {"tokenizer.ggml.add_bos_token": False}, 0),
        ("qwen2", {}, 0),
        ("qwen2", {"tokenizer.ggml.add_bos_token": True}, 1),
    ],
)
def test_bos_of_byte_level_files(pre: str, flag: dict[str, Any], num_bos: int) -> None:
    """Llama 3's files need not say that they want one. What the template wrote is not doubled."""
    more = {
        "tokenizer.ggml.token_type": [3, 1],
        "tokenizer.ggml.bos_token_id": 0,
        **flag,
    }
    ours = tokenizer(byte_level(["<s>", "a"], [], pre, **more))
    assert ours.encode("a", add_bos=True) == [0] * num_bos + [1]
    assert ours.encode("<s>a", add_bos=True, parse_special=True) == [0, 1]


def test_sentencepiece_without_a_blank_in_front() -> None:
    ours = tokenizer({**SENTENCEPIECE, "tokenizer.ggml.add_space_prefix": False})
    names = SENTENCEPIECE["tokenizer.ggml.tokens"]
    assert [names[i] for i in ours.encode("ab a")] == ["ab", "▁a"]
    assert ours.decode(ours.encode("ab a")) == "ab a"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((f"{name}_token_id", value) for name in ("bos", "eos", "unknown") for value in BAD_IDS),
        ("tokens", None),
        ("tokens", ["a", 1]),
        ("token_type", [1]),
        ("token_type", ["x"] * 264),
        ("scores", None),
        ("scores", [0.0]),
        ("scores", ["x"] * 264),
    ],
)
def test_senseless_metadata_are_named(key: str, value: Any) -> None:
    metadata = {**SENTENCEPIECE, f"tokenizer.ggml.{key}": value}
    with pytest.raises(ModelLoadError, match=f"tokenizer.ggml.{key}"):
        tokenizer(metadata)


@pytest.mark.parametrize("name", ["eos", "eot", "eom"])
@pytest.mark.parametrize("value", BAD_IDS)
def test_end_ids_outside_the_tokens_are_named(name: str, value: object) -> None:
    metadata = {**SENTENCEPIECE, f"tokenizer.ggml.{name}_token_id": value}
    with pytest.raises(ModelLoadError, match=f"tokenizer.ggml.{name}_token_id"):
        find_end_ids(metadata)


def test_senseless_metadata_of_byte_level_files_are_named() -> None:
    changes: tuple[tuple[str, Any], ...] = (
        ("tokenizer.ggml.merges", None),
        ("tokenizer.ggml.merges", [1]),
        ("tokenizer.ggml.pre", ["qwen2"]),
        ("tokenizer.chat_template", 7),
    )
    for key, value in changes:
        with pytest.raises(ModelLoadError, match=key):
            tokenizer({**byte_level(["a"], [], "default"), key: value})


def test_a_padding_token_outside_the_tokens_does_no_harm() -> None:
    metadata = {**SENTENCEPIECE, "tokenizer.ggml.padding_token_id": 2**32 - 1}
    assert tokenizer(metadata).eos_token == "</s>"
