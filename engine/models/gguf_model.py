"""A GGUF file as a Hugging Face model: its config.json, and its tensors under their HF names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.config import RopeConfig
from engine.models.families import FAMILIES
from engine.models.gguf_file import GGUFFile
from engine.models.gguf_tokenizer import find_end_ids
from engine.models.rope import inverse_frequencies

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_TOP_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_FACTORS = "rope_freqs.weight"


def gguf_config(file: GGUFFile) -> dict[str, Any]:
    """config.json of the model in `file`. Raises UnsupportedModelError for an architecture or
    a rope scaling that is not supported, ModelLoadError for metadata that are absent."""
    name = str(file.metadata.get("general.architecture"))
    if name not in _ARCHITECTURES:
        raise UnsupportedModelError(
            f"{file.path}: the architecture {name!r} is not supported; "
            f"supported in GGUF files are: {', '.join(sorted(_ARCHITECTURES))}."
        )

    def read(key: str, default: Any = None) -> Any:
        value = file.metadata.get(f"{name}.{key}", default)
        if value is None:
            raise ModelLoadError(f"{file.path} lacks the field {name}.{key}.")
        return value

    if read("expert_count", 0):
        raise UnsupportedModelError(f"{file.path} is a mixture of experts: not supported.")
    num_heads = read("attention.head_count")
    hidden_size = read("embedding_length")
    head_dim = read("attention.key_length", hidden_size // num_heads)
    architecture = _ARCHITECTURES[name]
    config: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": FAMILIES[architecture].model_type,
        "vocab_size": file.tensors["token_embd.weight"].shape[0],
        "hidden_size": hidden_size,
        "intermediate_size": read("feed_forward_length"),
        "num_hidden_layers": read("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": read("attention.head_count_kv", num_heads),
        "head_dim": head_dim,
        "max_position_embeddings": read("context_length"),
        "rms_norm_eps": read("attention.layer_norm_rms_epsilon"),
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_down.bias" in file.tensors,
        "rope_theta": read("rope.freq_base", 10000.0),
        "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.metadata.get("tokenizer.ggml.eos_token_id"),
    }
    scaling = _rope_scaling(file, read, config)
    if scaling is not None:
        config["rope_scaling"] = scaling
    return config


def gguf_generation_config(file: GGUFFile) -> dict[str, Any]:
    """generation_config.json of the model in `file`: every id that ends an answer."""
    return {"eos_token_id": list(find_end_ids(file.metadata))}


def _rope_scaling(file: GGUFFile, read: Any, config: Mapping[str, Any]) -> dict[str, Any] | None:
    if _ROPE_FACTORS in file.tensors:
        return _llama3_scaling(file, config)
    kind = read("rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": read("rope.scaling.factor")}
    raise UnsupportedModelError(f"{file.path}: the rope scaling {kind!r} is not supported.")


def _llama3_scaling(file: GGUFFile, config: Mapping[str, Any]) -> dict[str, Any]:
    """Llama 3's scaling is kept as its result, one divisor a frequency: finds the parameters
    that give it."""
    divisors = torch.from_numpy(file.dequantize(_ROPE_FACTORS))
    theta, head_dim = float(config["rope_theta"]), int(config["head_dim"])
    plain = inverse_frequencies(RopeConfig(theta), head_dim)
    factor = round(float(divisors.max()), 4)
    for context in (8192, 4096, 16384, 32768):
        rope = RopeConfig(theta, "llama3", factor, 1.0, 4.0, context)
        if torch.allclose(plain / inverse_frequencies(rope, head_dim), divisors, rtol=1e-3):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": context,
            }
    raise UnsupportedModelError(f"{file.path}: its rope frequency factors are of no known form.")


class GGUFTensors:
    """A `TensorSource` over a GGUF file; each read turns the whole tensor into float32."""

    def __init__(self, file: GGUFFile, config: Mapping[str, Any]) -> None:
        """`config` is what `gguf_config` made. Raises ModelLoadError for an unknown tensor."""
        self._file = file
        self._stored_names = {
            _hf_name(name, file): name for name in file.tensors if name != _ROPE_FACTORS
        }
        # The Llama form keeps each head's pairs (i, i + D/2) as neighbours in GGUF files.
        self._interleaved = {}
        if file.metadata["general.architecture"] == "llama":
            self._interleaved = {
                ".attn_q.": int(config["num_attention_heads"]),
                ".attn_k.": int(config["num_key_value_heads"]),
            }

    @property
    def names(self) -> Collection[str]:
        return self._stored_names.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._file.tensors[self._stored_names[name]].shape

    def origin(self, name: str) -> str:
        return self._file.path.name

    def tensor(self, name: str) -> torch.Tensor:
        stored = self._stored_names[name]
        values = self._file.dequantize(stored)
        for part, num_heads in self._interleaved.items():
            if part in stored:
                values = _separate_pairs(values, num_heads)
        return torch.from_numpy(values)


def _separate_pairs(values: np.ndarray[Any, Any], num_heads: int) -> np.ndarray[Any, Any]:
    """Rows of each head from the order 0, D/2, 1, D/2 + 1, … to 0, 1, …, D - 1."""
    pairs = values.reshape(num_heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)


def _hf_name(name: str, file: GGUFFile) -> str:
    stem, _, ending = name.rpartition(".")
    if stem in _TOP_NAMES:
        return f"{_TOP_NAMES[stem]}.{ending}"
    parts = stem.split(".")
    if len(parts) == 3 and parts[0] == "blk" and parts[2] in _LAYER_NAMES:
        return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.{ending}"
    raise ModelLoadError(f"{file.path} holds a tensor of unknown meaning: {name!r}.")
