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
TINY_MODELS: Mapping[str, TinyModel] = {
    "llama": TinyModel("llama"),
    "llama_tied": TinyModel("llama", {"tie_word_embeddings": True}),
    "llama_biases": TinyModel("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama_llama3_rope": TinyModel("llama", {"rope_parameters": _LLAMA3_ROPE}),
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
    "qwen2": TinyModel("qwen2", {"tie_word_embeddings": True}),
    "qwen2_window": TinyModel(
        "qwen2", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}
    ),
    "qwen3": TinyModel("qwen3", {"head_dim": 24}),
    "mistral": TinyModel("mistral", {"sliding_window": None}),
    "mistral_window": TinyModel("mistral", {"sliding_window": 16}),
}


def build_tiny_model(folder: Path, name: str, *, num_shards: int = 1) -> Path:
    """Writes the model `name` of `TINY_MODELS` to `folder`: config, generation config with a
    list of EOS ids, tokenizer, and float32 weights in `num_shards` files."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tiny = TINY_MODELS[name]
    config = AutoConfig.for_model(tiny.model_type, **{**_common_config(), **tiny.config})
    state = torch.random.get_rng_state()
    torch.manual_seed(sum(name.encode()))
    model = AutoModelForCausalLM.from_config(config).float()  # type: ignore[no-untyped-call]
    for parameter_name, parameter in model.named_parameters():
        # Random norms and biases too: a model that forgets one must not pass.
        parameter.data.normal_(1.0 if "norm" in parameter_name else 0.0, 0.2)
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
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }


_GGUF_ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2"}
_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: Path, folder: Path, quantization: str = "F32", **changes: Any) -> Path:
    """The model of `folder` as a GGUF file, its matrices quantized as `quantization`.
    `changes` replace metadata, with a dot for each double underscore."""
    import gguf
    from gguf.quants import quantize
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text("utf-8"))
    architecture = _GGUF_ARCHITECTURES[config["architectures"][0]]
    writer = gguf.GGUFWriter(path, architecture)
    metadata = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config["rope_parameters"]["rope_theta"],
    }
    values: dict[str, Any] = {f"{architecture}.{key}": value for key, value in metadata.items()}
    values.update(gguf_tokenizer_metadata(folder))
    values.update({key.replace("__", "."): value for key, value in changes.items()})
    for key, value in values.items():
        _add_metadata(writer, key, value)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    kind = gguf.GGMLQuantizationType[quantization]
    for name, tensor in load_file(folder / "model.safetensors").items():
        stem, _, ending = name.rpartition(".")
        layer = ""
        if stem.startswith("model.layers."):
            _, _, number, stem = stem.split(".", 3)
            layer = f"blk.{number}."
        stem = _GGUF_NAMES[stem]
        if architecture == "llama" and stem in heads:
            # Files of this architecture interleave the two halves of each head.
            halves = tensor.reshape(heads[stem], 2, -1, *tensor.shape[1:])
            tensor = halves.swapaxes(1, 2).reshape(tensor.shape)
        own_kind = kind if tensor.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(f"{layer}{stem}.{ending}", quantize(tensor, own_kind), raw_dtype=own_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_tokenizer_metadata(folder: Path) -> dict[str, Any]:
    """The tokenizer of a folder that `write_tokenizer` made, as GGUF metadata."""
    content = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    vocabulary: dict[str, int] = content["model"]["vocab"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": sorted(vocabulary, key=lambda text: vocabulary[text]),
        "tokenizer.ggml.token_type": [3 if i < 3 else 1 for i in range(len(vocabulary))],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in content["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def _add_metadata(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)
    else:
        writer.add_string(key, value)
