"""Tiny models as GGUF files, in the form that each architecture has there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.tiny_models import CHAT_TEMPLATE

GGUF_MODELS = (
    "llama",
    "llama_tied",
    "llama_biases",
    "mixtral",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "phi3",
    "phi3_partial_rope",
    "phi3_long_factors",
    "gemma",
    "gemma2",
    "gemma3",
    "smollm3",
)
"""Those of `TINY_MODELS` that a GGUF file can hold."""
_GGUF_ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MixtralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3moe",
    "Phi3ForCausalLM": "phi3",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "SmolLM3ForCausalLM": "smollm3",
}
_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
}


def write_gguf(path: Path, folder: Path, quantization: str = "F32", **changes: Any) -> Path:
    """The model of `folder` as a GGUF file, its matrices quantized as `quantization`.
    `changes` replace metadata, with a dot for each double underscore."""
    import gguf
    from gguf.quants import quantize

    config = json.loads((folder / "config.json").read_text("utf-8"))
    architecture = _GGUF_ARCHITECTURES[config["architectures"][0]]
    writer = gguf.GGUFWriter(path, architecture)
    values = {f"{architecture}.{key}": value for key, value in _gguf_metadata(config).items()}
    values.update(gguf_tokenizer_metadata(folder))
    values.update({key.replace("__", "."): value for key, value in changes.items()})
    for key, value in values.items():
        _add_metadata(writer, key, value)
    kind = gguf.GGMLQuantizationType[quantization]
    for name, tensor in _gguf_tensors(folder, config, architecture).items():
        is_matrix = tensor.ndim >= 2 and "ffn_gate_inp" not in name
        own_kind = kind if is_matrix else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, quantize(tensor, own_kind), raw_dtype=own_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_metadata(config: Mapping[str, Any]) -> dict[str, Any]:
    rope = config["rope_parameters"]
    full = rope.get("full_attention", rope)
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    metadata = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "rope.dimension_count": int(head_dim * full.get("partial_rotary_factor", 1.0)),
        "rope.freq_base": full["rope_theta"],
        "attn_logit_softcapping": config.get("attn_logit_softcapping"),
        "final_logit_softcapping": config.get("final_logit_softcapping"),
        "attention.sliding_window": config.get("sliding_window"),
        "attention.sliding_window_pattern": [
            kind == "sliding_attention" for kind in config.get("layer_types", ())
        ]
        if config["model_type"].startswith("gemma3")
        else None,
        "expert_count": config.get("num_local_experts", config.get("num_experts")),
        "expert_used_count": config.get("num_experts_per_tok"),
        "expert_feed_forward_length": config.get("moe_intermediate_size"),
        "rope.scaling.original_context_length": config.get("original_max_position_embeddings"),
        "rope.scaling.attn_factor": full.get("attention_factor"),
    }
    return {key: value for key, value in metadata.items() if value is not None}


def _gguf_tensors(folder: Path, config: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """The model's tensors by their GGUF names, in the form that files of `architecture` have."""
    import numpy as np
    from safetensors.numpy import load_file

    tensors: dict[str, Any] = {}
    experts: dict[str, list[tuple[int, Any]]] = {}
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, tensor in load_file(folder / "model.safetensors").items():
        stem, _, ending = name.rpartition(".")
        layer = ""
        if stem.startswith("model.layers."):
            _, _, number, stem = stem.split(".", 3)
            layer = f"blk.{number}."
        if ".experts." in stem:
            before, _, last = stem.partition(".experts.")
            number, _, kind = last.partition(".")
            merged = _GGUF_NAMES[f"{before}.experts.{kind}"]
            experts.setdefault(f"{layer}{merged}.{ending}", []).append((int(number), tensor))
            continue
        short = _GGUF_NAMES[stem]
        if architecture in ("gemma2", "gemma3") and stem == "post_attention_layernorm":
            short = "post_attention_norm"
        if architecture in ("llama", "smollm3") and short in heads:
            # Files of these architectures interleave the two halves of each head.
            halves = tensor.reshape(heads[short], 2, -1, *tensor.shape[1:])
            tensor = halves.swapaxes(1, 2).reshape(tensor.shape)
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            tensor = tensor + 1
        if short == "ffn_gate_inp_shexp":
            tensor = tensor[0]
        tensors[f"{layer}{short}.{ending}"] = tensor
    for name, parts in experts.items():
        tensors[name] = np.stack([tensor for _, tensor in sorted(parts, key=lambda part: part[0])])
    rope = config["rope_parameters"]
    for kind in ("long", "short"):
        if f"{kind}_factor" in rope:
            tensors[f"rope_factors_{kind}.weight"] = np.array(rope[f"{kind}_factor"], np.float32)
    return tensors


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
