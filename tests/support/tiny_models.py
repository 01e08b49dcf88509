"""Tiny random models in Hugging Face's form, one for each form of decoder that is supported.

`build_tiny_model(folder, name)` writes the folder; the same name gives the same weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCAB_SIZE = 320
_TRAINING_TEXT = (
    "Paging lets the key value cache grow block by block. A block holds sixteen tokens.",
    "The scheduler gives each step a token budget; the decode steps come first.",
    "缓存按块分配,调度器每一步都有预算。实验四需要提交报告和代码。",
)


@dataclass(frozen=True, slots=True)
class TinyModel:
    """Changes to the common tiny configuration. `edits` are made in config.json afterwards (a
    value of None removes the key), for forms that the library itself no longer writes."""

    model_type: str
    config: Mapping[str, Any] = field(default_factory=dict)
    edits: Mapping[str, Any] = field(default_factory=dict)


_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 64,
}
_DYNAMIC_ROPE = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
_SHORT_FACTORS = [1.0, 1.0625, 1.125, 1.25, 1.5, 1.75, 2.0, 2.5]
_LONG_FACTORS = [1.0, 1.25, 1.625, 2.0, 4.0, 6.0, 8.0, 9.0]
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "attention_factor": 1.25,
    "short_factor": _SHORT_FACTORS,
    "long_factor": _LONG_FACTORS,
}
_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_GEMMA2 = {
    "head_dim": 24,
    "num_hidden_layers": 3,
    "sliding_window": 16,
    "query_pre_attn_scalar": 24,
    "attn_logit_softcapping": 3.0,
    "final_logit_softcapping": 8.0,
}
TINY_MODELS: Mapping[str, TinyModel] = {
    "llama": TinyModel("llama"),
    "llama_tied": TinyModel("llama", {"tie_word_embeddings": True}),
    "llama_biases": TinyModel("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama_head_dim": TinyModel("llama", {"head_dim": 8, "hidden_act": "gelu"}),
    "llama_llama3_rope": TinyModel("llama", {"rope_parameters": _LLAMA3_ROPE}),
    "llama_yarn_rope": TinyModel("llama", {"rope_parameters": _YARN_ROPE}),
    "llama_dynamic_rope": TinyModel("llama", {"rope_parameters": _DYNAMIC_ROPE}),
    "llama_linear_rope": TinyModel(
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    "llama_linear_rope_old_key": TinyModel(
        "llama",
        edits={
            "rope_parameters": None,
            "rope_theta": 5000.0,
            "rope_scaling": {"type": "linear", "factor": 2.0},
        },
    ),
    "mistral": TinyModel("mistral", {"sliding_window": None}),
    "mistral_window": TinyModel("mistral", {"sliding_window": 16}),
    "mixtral": TinyModel("mixtral", {"num_local_experts": 4}),
    "qwen2": TinyModel("qwen2", {"tie_word_embeddings": True}),
    "qwen2_window": TinyModel(
        "qwen2", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}
    ),
    "qwen2_moe": TinyModel("qwen2_moe", {**_MOE, "shared_expert_intermediate_size": 64}),
    "qwen2_moe_window": TinyModel(
        "qwen2_moe",
        {
            **_MOE,
            "shared_expert_intermediate_size": 64,
            "qkv_bias": False,
            "use_sliding_window": True,
            "sliding_window": 16,
            "mlp_only_layers": [1],
            "norm_topk_prob": True,
        },
    ),
    "qwen3": TinyModel("qwen3", {"head_dim": 24}),
    "qwen3_moe": TinyModel("qwen3_moe", {**_MOE, "head_dim": 24, "norm_topk_prob": True}),
    "qwen3_moe_window": TinyModel(
        "qwen3_moe",
        {**_MOE, "use_sliding_window": True, "sliding_window": 16, "decoder_sparse_step": 2},
    ),
    "phi3": TinyModel("phi3", {"sliding_window": 16}),
    "phi3_partial_rope": TinyModel(
        "phi3",
        {
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
            }
        },
    ),
    # Every prompt is longer than this trained window, none fills the next one: so each sequence
    # has one set of factors from its first token to its last, in transformers too.
    "phi3_long_factors": TinyModel(
        "phi3", {"original_max_position_embeddings": 2, "rope_parameters": _LONGROPE}
    ),
    "phi3_short_factors": TinyModel(
        "phi3", {"original_max_position_embeddings": 512, "rope_parameters": _LONGROPE}
    ),
    "phi3_old_keys": TinyModel(
        "phi3",
        {"original_max_position_embeddings": 512},
        edits={
            "rope_parameters": None,
            "rope_theta": 5000.0,
            "rope_scaling": {
                "type": "longrope",
                "short_factor": _SHORT_FACTORS,
                "long_factor": _LONG_FACTORS,
            },
        },
    ),
    "gemma": TinyModel("gemma", {"head_dim": 24, "tie_word_embeddings": True}),
    "gemma2": TinyModel("gemma2", {**_GEMMA2, "tie_word_embeddings": True}),
    "gemma3": TinyModel(
        "gemma3_text",
        {
            "head_dim": 24,
            "num_hidden_layers": 3,
            "sliding_window": 16,
            "query_pre_attn_scalar": 24,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "gemma3_old_keys": TinyModel(
        "gemma3_text",
        {
            "head_dim": 24,
            "num_hidden_layers": 3,
            "sliding_window": 16,
            "query_pre_attn_scalar": 16,
        },
        edits={
            "layer_types": None,
            "sliding_window_pattern": 2,
            "rope_parameters": None,
            "rope_theta": 50000.0,
            "rope_local_base_freq": 5000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        },
    ),
    "gemma3_with_images": TinyModel(
        "gemma3",
        {
            "text_config": {
                "vocab_size": VOCAB_SIZE,
                "hidden_size": 64,
                "intermediate_size": 96,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 24,
                "max_position_embeddings": 512,
                "sliding_window": 16,
                "sliding_window_pattern": 2,
            },
            "vision_config": {
                "hidden_size": 32,
                "intermediate_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 28,
                "patch_size": 14,
            },
            "mm_tokens_per_image": 4,
            "image_token_index": 319,
        },
    ),
    "smollm3": TinyModel("smollm3", {"num_hidden_layers": 4, "tie_word_embeddings": True}),
    "smollm3_window": TinyModel(
        "smollm3",
        {"no_rope_layers": [0, 1], "use_sliding_window": True, "sliding_window": 16},
    ),
}
"""One for each form of decoder that is supported, and for each way to write it down."""

GENERIC_MODELS: Mapping[str, TinyModel] = {
    "cohere2": TinyModel(
        "cohere2",
        {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "gpt2": TinyModel("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}),
    "granite": TinyModel(
        "granite",
        {
            "logits_scaling": 2.0,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.7,
        },
    ),
    "olmo2": TinyModel("olmo2"),
    "starcoder2": TinyModel("starcoder2", {"sliding_window": 16}),
}
"""Other architectures, which only the code of transformers can run."""


def build_tiny_model(folder: Path, name: str, *, num_shards: int = 1) -> Path:
    """Writes the model `name` of `TINY_MODELS` or `GENERIC_MODELS` to `folder`: config, generation
    config with a list of EOS ids, tokenizer, and float32 weights in `num_shards` files."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tiny = {**TINY_MODELS, **GENERIC_MODELS}[name]
    config = AutoConfig.for_model(tiny.model_type, **{**_common_config(), **tiny.config})
    state = torch.random.get_rng_state()
    torch.manual_seed(sum(name.encode()))
    model = AutoModelForCausalLM.from_config(config).float()  # type: ignore[no-untyped-call]
    for parameter_name, parameter in model.named_parameters():
        # Random norms and biases too: a model that forgets one must not pass.
        is_scale = (
            "norm" in parameter_name or "ln" in parameter_name
        ) and "gemma" not in tiny.model_type
        parameter.data.normal_(1.0 if is_scale else 0.0, 0.2)
    torch.random.set_rng_state(state)
    model.generation_config.eos_token_id = [0, 2]
    total_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    shard_bytes = total_bytes if num_shards == 1 else total_bytes * 2 // (2 * num_shards - 1)
    model.save_pretrained(folder, max_shard_size=shard_bytes + 1)
    if tiny.edits:
        path = folder / "config.json"
        content = json.loads(path.read_text("utf-8"))
        content.update(tiny.edits)
        kept = {key: value for key, value in content.items() if value is not None}
        path.write_text(json.dumps(kept), "utf-8")
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """A byte-level BPE tokenizer with a few dozen merges and a ChatML template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TRAINING_TEXT, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")


def _common_config() -> dict[str, Any]:
    return {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
