"""`HFTokenizer` with tokenizers of the SentencePiece kind: words marked by U+2581, characters that
are not in the vocabulary as bytes, a blank in front of a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer

from engine.text.detokenizer import Detokenizer
from engine.text.tokenizer import HFTokenizer

MARK = "\u2581"
PIECES = [
    MARK,
    *"abcdehilnoqrstuwy",
    f"{MARK}the",
    f"{MARK}is",
    f"{MARK}queen",
    "queen",
    "分页",
    f"{MARK}{MARK}",
]
VOCABULARY = {
    piece: index
    for index, piece in enumerate(
        ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    )
}
MERGES = [
    (left, right)
    for piece in PIECES
    for cut in range(1, len(piece))
    if (left := piece[:cut]) in VOCABULARY and (right := piece[cut:]) in VOCABULARY
]
TEXTS = [
    "the queen is",
    " the queen",
    "  two blanks ",
    "分页是 paging 😀 é",
    "a\n\tb\r\n",
    "<s>the queen</s> is",
    "",
    " ",
]


def llama_style() -> Tokenizer:
    """As Llama 2 and Mistral have it: a normalizer marks the words."""
    tokenizer = bpe()
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
    )
    tokenizer.decoder = sentencepiece_decoder([decoders.Strip(" ", 1, 0)])
    return tokenizer


def metaspace_style(scheme: str) -> Tokenizer:
    """As newer files have it: a pre-tokenizer marks the words."""
    tokenizer = bpe()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.ByteFallback(),
            decoders.Metaspace(prepend_scheme=scheme),
        ]
    )
    return tokenizer


def gemma_style() -> Tokenizer:
    """No blank in front."""
    tokenizer = bpe()
    tokenizer.normalizer = normalizers.Replace(" ", MARK)
    tokenizer.decoder = sentencepiece_decoder([])
    return tokenizer


def unigram_style() -> Tokenizer:
    """Pieces with their own scores and no merges."""
    scores = [(piece, -float(index)) for piece, index in VOCABULARY.items()]
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=0, byte_fallback=True))
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = sentencepiece_decoder([decoders.Strip(" ", 1, 0)])
    return tokenizer


def bpe() -> Tokenizer:
    tokenizer = Tokenizer(
        models.BPE(VOCABULARY, MERGES, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def sentencepiece_decoder(last: list[Any]) -> Any:
    return decoders.Sequence(
        [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), *last]
    )


STYLES = {
    "llama": llama_style(),
    "metaspace_first": metaspace_style("first"),
    "metaspace_always": metaspace_style("always"),
    "metaspace_never": metaspace_style("never"),
    "gemma": gemma_style(),
    "unigram": unigram_style(),
}
BLANK_IN_FRONT = ("llama", "metaspace_first", "metaspace_always", "unigram")


def ours(style: str) -> HFTokenizer:
    return HFTokenizer(STYLES[style].to_str(), {"bos_token": "<s>", "eos_token": "</s>"})


@pytest.mark.parametrize("style", sorted(STYLES))
def test_ids_and_text_equal_transformers(style: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(STYLES[style].to_str(), "utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer = ours(style)
    for text in TEXTS:
        ids = tokenizer.encode(text, parse_special=True)
        assert ids == theirs.encode(text, add_special_tokens=False), text
        assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text


@pytest.mark.parametrize("style", sorted(STYLES))
@given(text=st.text(st.sampled_from("abe q\n分页é😀") | st.characters(exclude_categories=["Cs"])))
def test_bytes_of_pieces_are_the_text(style: str, text: str) -> None:
    """Each piece alone, in whatever deltas: the text, with the blank that was put in front."""
    tokenizer = _TOKENIZERS.setdefault(style, ours(style))
    text = text.replace(MARK, "")  # nobody writes the mark itself
    ids = tokenizer.encode(text)
    assert not set(ids) & {0, 1, 2}
    pieces = b"".join(map(tokenizer.token_bytes, ids)).decode()
    in_front = " " if style in BLANK_IN_FRONT and pieces[:1] == " " and text[:1] != " " else ""
    if style == "llama" and text:
        in_front = " "  # before a text that begins with a blank too
    assert pieces == in_front + text


_TOKENIZERS: dict[str, HFTokenizer] = {}


@pytest.mark.parametrize("style", sorted(STYLES))
def test_deltas_keep_every_inner_blank(style: str) -> None:
    """The trap: decoding one piece alone strips its blank."""
    tokenizer = ours(style)
    ids = tokenizer.encode("the queen is the 分页 é queen")
    detokenizer = Detokenizer(tokenizer.token_bytes)
    text = "".join(detokenizer.push(token_id).text for token_id in ids) + detokenizer.flush()
    assert text.lstrip(" ") == "the queen is the 分页 é queen"
    assert text.lstrip(" ") == tokenizer.decode(ids).lstrip(" ")


def test_a_character_in_bytes_is_shown_when_it_is_whole() -> None:
    tokenizer = ours("llama")
    ids = [VOCABULARY[f"<0x{byte:02X}>"] for byte in "é".encode()]
    assert [tokenizer.token_bytes(token_id) for token_id in ids] == [b"\xc3", b"\xa9"]
    assert tokenizer.encode("é")[-2:] == ids


@pytest.mark.parametrize("style", sorted(STYLES))
def test_control_tokens_in_a_users_text_stay_text(style: str) -> None:
    """A model that knows whole pieces finds them in plain characters too."""
    tokenizer = ours(style)
    ids = tokenizer.encode("</s><s>the")
    assert not set(ids) & {0, 1, 2}
    assert b"".join(map(tokenizer.token_bytes, ids)).decode().strip() == "</s><s>the"
    assert {1, 2} <= set(tokenizer.encode("</s><s>the", parse_special=True))


def test_a_table_of_whole_words_gives_no_control_token_either() -> None:
    words = {"<unk>": 0, "hello": 1, "<s>": 2, "</s>": 3}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 2)]
    )
    tokenizer = HFTokenizer(backend.to_str(), {"bos_token": "<s>"})
    assert tokenizer.encode("hello </s> <s>") == [1, 0, 0]
    assert tokenizer.encode("hello </s> <s>", parse_special=True) == [1, 3, 2]
    assert tokenizer.encode("hello", add_bos=True) == [2, 1]


def test_merges_that_are_passed_over_give_no_control_token() -> None:
    backend = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [], ignore_merges=True))
    backend.add_special_tokens(["ab"])
    tokenizer = HFTokenizer(backend.to_str(), {})
    assert tokenizer.encode("ab") == [0, 1]
    assert tokenizer.encode("ab", parse_special=True) == [2]
