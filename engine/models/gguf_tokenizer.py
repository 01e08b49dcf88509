"""tokenizer.json and tokenizer_config.json out of a GGUF file's metadata. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.config_fields import ConfigFields, is_finite_number

_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5  # values of tokenizer.ggml.token_type
_END_TEXTS = frozenset(
    {
        "<|endoftext|>",
        "<|im_end|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<end_of_turn>",
        "</s>",
    }
)
"""Control tokens by which models end an answer, whatever the file names as its EOS."""

_TOKENS = "tokenizer.ggml.tokens"
_SOURCE = "The GGUF file"

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_QWEN_SPLIT = _CONTRACTIONS + _WORD + r"|\p{N}" + _TAIL
_LLAMA3_SPLIT = _CONTRACTIONS + _WORD + r"|\p{N}{1,3}" + _TAIL

_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}


def _split_by(pattern: str) -> dict[str, Any]:
    return {
        "type": "Sequence",
        "pretokenizers": [
            {
                "type": "Split",
                "pattern": {"Regex": pattern},
                "behavior": "Isolated",
                "invert": False,
            },
            {**_BYTE_LEVEL, "use_regex": False},
        ],
    }


_SINGLE_DIGITS = {
    "type": "Sequence",
    "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
}
_PRE_TOKENIZERS: Mapping[str, Mapping[str, Any]] = {
    "default": _BYTE_LEVEL,
    "gpt-2": _BYTE_LEVEL,
    "smollm": _SINGLE_DIGITS,
    "qwen2": _split_by(_QWEN_SPLIT),
    "deepseek-r1-qwen": _split_by(_QWEN_SPLIT),
    "llama-bpe": _split_by(_LLAMA3_SPLIT),
    "llama3": _split_by(_LLAMA3_SPLIT),
    "llama-v3": _split_by(_LLAMA3_SPLIT),
    "dbrx": _split_by(_LLAMA3_SPLIT),
    "smaug-bpe": _split_by(_LLAMA3_SPLIT),
}
_MATCHES_WHOLE_WORDS_FIRST = frozenset({"llama-bpe", "llama3", "llama-v3"})


def tokenizer_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The content of tokenizer.json. Raises UnsupportedModelError, naming the kind, and
    ModelLoadError, naming the field."""
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        parts = _byte_level_parts(metadata)
    elif kind == "llama":
        parts = _sentencepiece_parts(metadata)
    else:
        raise UnsupportedModelError(
            f"The tokenizer kind {kind!r} is not supported; supported in GGUF files are: "
            "gpt2 (byte-level BPE), llama (SentencePiece BPE)."
        )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(metadata),
        "post_processor": None,
        **parts,
    }


def tokenizer_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The content of tokenizer_config.json, chat template included. Raises ModelLoadError,
    naming the field."""
    fields = ConfigFields(metadata, _SOURCE)
    tokens = fields.texts(_TOKENS)
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": bool(
            metadata.get("tokenizer.ggml.add_bos_token", _wants_bos_by_default(metadata))
        ),
    }
    # The padding token is not among them: nothing is padded, and files name ones that are not.
    for name, short in (("bos", "bos"), ("eos", "eos"), ("unknown", "unk")):
        token_id = fields.index(f"tokenizer.ggml.{name}_token_id", len(tokens))
        if token_id is not None:
            config[f"{short}_token"] = tokens[token_id]
    if template := fields.text("tokenizer.chat_template", ""):
        config["chat_template"] = template
    return config


def _wants_bos_by_default(metadata: Mapping[str, Any]) -> bool:
    """Files of the SentencePiece kind and those of Llama 3 that do not say otherwise."""
    return (
        metadata.get("tokenizer.ggml.model") == "llama"
        or metadata.get("tokenizer.ggml.pre") in _MATCHES_WHOLE_WORDS_FIRST
    )


def find_end_ids(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """Every id that ends an answer, ascending: those that the file names, and control tokens
    whose text is known to end one. Raises ModelLoadError, naming the field."""
    fields = ConfigFields(metadata, _SOURCE)
    tokens = _typed_tokens(metadata)
    named = (
        fields.index(f"tokenizer.ggml.{name}_token_id", len(tokens))
        for name in ("eos", "eot", "eom")
    )
    ids = {token_id for token_id in named if token_id is not None}
    for token_id, (text, kind) in enumerate(tokens):
        if kind == _CONTROL and text in _END_TEXTS:
            ids.add(token_id)
    return tuple(sorted(ids))


def _typed_tokens(metadata: Mapping[str, Any]) -> Sequence[tuple[str, int]]:
    fields = ConfigFields(metadata, _SOURCE)
    tokens = fields.texts(_TOKENS)
    kinds = [1] * len(tokens)
    if metadata.get("tokenizer.ggml.token_type"):
        kinds = fields.integers("tokenizer.ggml.token_type")
    _check_length("tokenizer.ggml.token_type", kinds, tokens)
    return list(zip(tokens, kinds, strict=True))


def _check_length(name: str, values: Sequence[object], tokens: Sequence[str]) -> None:
    if len(values) != len(tokens):
        raise ModelLoadError(
            f"{_SOURCE}: {name} has {len(values)} entries for {len(tokens)} tokens."
        )


def _added_tokens(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    added = {
        token_id: kind in (_CONTROL, _UNKNOWN)
        for token_id, (_, kind) in enumerate(_typed_tokens(metadata))
        if kind in (_CONTROL, _UNKNOWN, _USER_DEFINED)
    }
    tokens = metadata[_TOKENS]
    return [
        {
            "id": token_id,
            "content": tokens[token_id],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": special,
        }
        for token_id, special in added.items()
    ]


def _vocabulary(metadata: Mapping[str, Any]) -> dict[str, int]:
    """Without the tokens that only fill the embedding up."""
    return {
        text: token_id
        for token_id, (text, kind) in enumerate(_typed_tokens(metadata))
        if kind != _UNUSED
    }


def _byte_level_parts(metadata: Mapping[str, Any]) -> dict[str, Any]:
    fields = ConfigFields(metadata, _SOURCE)
    name = fields.text("tokenizer.ggml.pre", "default")
    merges = fields.texts("tokenizer.ggml.merges")
    if name not in _PRE_TOKENIZERS:
        raise UnsupportedModelError(
            f"The pre-tokenizer {name!r} is not supported; "
            f"supported are: {', '.join(sorted(_PRE_TOKENIZERS))}."
        )
    return {
        "normalizer": None,
        "pre_tokenizer": _PRE_TOKENIZERS[name],
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "ignore_merges": name in _MATCHES_WHOLE_WORDS_FIRST,
            "vocab": _vocabulary(metadata),
            "merges": [merge.split(" ", 1) for merge in merges],
        },
    }


def _sentencepiece_parts(metadata: Mapping[str, Any]) -> dict[str, Any]:
    has_prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    normalizers: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    ]
    if has_prefix:
        # Before every text, even one that begins with a blank: else decoding would lose that.
        normalizers.insert(0, {"type": "Prepend", "prepend": "\u2581"})
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    vocabulary = _vocabulary(metadata)
    fields = ConfigFields(metadata, _SOURCE)
    tokens = fields.texts(_TOKENS)
    unknown = fields.index("tokenizer.ggml.unknown_token_id", len(tokens)) or 0
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or not all(map(is_finite_number, scores)):
        raise ModelLoadError(f"{_SOURCE}: tokenizer.ggml.scores must be a list of numbers.")
    _check_length("tokenizer.ggml.scores", scores, tokens)
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "unk_token": tokens[unknown] if tokens else None,
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": vocabulary,
            "merges": _merges_by_score(vocabulary, scores),
        },
    }


def _merges_by_score(
    vocabulary: Mapping[str, int], scores: Sequence[float]
) -> list[tuple[str, str]]:
    """SentencePiece joins the neighbours whose union has the best score; as a list of merges,
    those are all splits of each piece into two others, the best piece first."""
    merges: list[tuple[float, str, str]] = []
    for piece, token_id in vocabulary.items():
        splits = [
            (vocabulary[left], vocabulary[right], left, right)
            for cut in range(1, len(piece))
            if (left := piece[:cut]) in vocabulary and (right := piece[cut:]) in vocabulary
        ]
        splits.sort()
        merges.extend((-scores[token_id], left, right) for _, _, left, right in splits)
    merges.sort(key=lambda merge: merge[0])
    return [(left, right) for _, left, right in merges]
