"""config.json and generation_config.json of the model in a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.config_fields import MAX_LAYERS, MAX_SIZE, ConfigFields
from engine.models.families import FAMILIES
from engine.models.gguf_file import GGUFFile
from engine.models.gguf_tokenizer import find_end_ids
from engine.models.layer_kinds import FULL, SLIDING
from engine.models.rope import inverse_frequencies
from engine.models.rope_config import RopeConfig

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3moe": "Qwen3MoeForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}
ROPE_FACTORS = "rope_freqs.weight"
LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
_SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
_UNKNOWN_SCALES = ("attention.scale", "embedding_scale", "residual_scale", "logit_scale")
"""Fields of models that share an architecture's name and yet compute something else."""
_27B_LAYERS = {"gemma2": 46, "gemma3": 62}
"""The two Gemmas whose scores are scaled by the width of a head's share of the hidden state, and
not of a head; their files do not say so, but for the number of layers."""


def gguf_config(file: GGUFFile) -> dict[str, Any]:
    """config.json of the model in `file`. Raises UnsupportedModelError for an architecture or
    an option that is not supported, ModelLoadError for metadata that are absent or senseless; all
    of them name the field."""
    name = ConfigFields(file.metadata, str(file.path)).text("general.architecture", "None")
    if name not in _ARCHITECTURES:
        raise UnsupportedModelError(
            f"{file.path}: the architecture {name!r} is not supported; "
            f"supported in GGUF files are: {', '.join(sorted(_ARCHITECTURES))}."
        )
    return _Reader(file, name).read()


def gguf_generation_config(file: GGUFFile) -> dict[str, Any]:
    """generation_config.json of the model in `file`: every id that ends an answer, and how its
    makers want it to be sampled."""
    fields = ConfigFields(file.metadata, str(file.path))
    sampling = {
        name: fields.number(f"general.sampling.{key}")
        for key, name in _SAMPLING.items()
        if f"general.sampling.{key}" in file.metadata
    }
    return {"eos_token_id": list(find_end_ids(file.metadata)), **sampling}


class _Reader:
    def __init__(self, file: GGUFFile, name: str) -> None:
        self._file = file
        self._name = name
        self._fields = ConfigFields(file.metadata, str(file.path))

    def read(self) -> dict[str, Any]:
        file, name = self._file, self._name
        num_heads = self._size("attention.head_count")
        hidden_size = self._size("embedding_length")
        head_dim = self._size("attention.key_length", hidden_size // num_heads)
        num_experts = self._size("expert_count", 0, least=0)
        num_tokens = len(self._fields.texts("tokenizer.ggml.tokens"))
        architecture = _ARCHITECTURES[name]
        if name == "llama" and num_experts:
            architecture = "MixtralForCausalLM"
        config: dict[str, Any] = {
            "architectures": [architecture],
            "model_type": FAMILIES[architecture].model_type,
            "vocab_size": self._shape("token_embd.weight", 2)[0],
            "hidden_size": hidden_size,
            "intermediate_size": self._size("feed_forward_length"),
            "num_hidden_layers": self._size("block_count", most=MAX_LAYERS),
            "num_attention_heads": num_heads,
            "num_key_value_heads": self._size("attention.head_count_kv", num_heads),
            "head_dim": head_dim,
            "max_position_embeddings": self._size("context_length"),
            "rms_norm_eps": self._positive("attention.layer_norm_rms_epsilon"),
            "tie_word_embeddings": "output.weight" not in file.tensors,
            "attention_bias": "blk.0.attn_q.bias" in file.tensors,
            "mlp_bias": "blk.0.ffn_down.bias" in file.tensors,
            "rope_theta": self._positive("rope.freq_base", 10000.0),
            "bos_token_id": self._fields.index("tokenizer.ggml.bos_token_id", num_tokens),
            "eos_token_id": self._fields.index("tokenizer.ggml.eos_token_id", num_tokens),
        }
        self._refuse_unknown(config)
        if num_experts:
            config.update(self._experts(num_experts))
        by_name: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "phi3": self._phi3,
            "gemma2": self._gemma2,
            "gemma3": self._gemma3,
        }
        if name in by_name:
            config.update(by_name[name](config))
        scaling = self._rope_scaling(config)
        if scaling is not None:
            config["rope_scaling"] = scaling
        return config

    def _size(
        self, key: str, default: int | None = None, *, least: int = 1, most: int = MAX_SIZE
    ) -> int:
        name = f"{self._name}.{key}"
        if isinstance(self._file.metadata.get(name), list):
            raise UnsupportedModelError(
                f"{self._file.path}: {name} differs by layer: not supported."
            )
        return self._fields.size(name, default, least=least, most=most)

    def _positive(self, key: str, default: float | None = None) -> float:
        return self._fields.positive(f"{self._name}.{key}", default)

    def _shape(self, tensor: str, num_dims: int) -> tuple[int, ...]:
        if tensor not in self._file.tensors:
            raise ModelLoadError(f"{self._file.path} lacks the tensor {tensor}.")
        shape = self._file.tensors[tensor].shape
        if len(shape) != num_dims:
            raise ModelLoadError(
                f"{self._file.path}: the tensor {tensor} has {len(shape)} dimensions, not "
                f"{num_dims}."
            )
        return shape

    def _refuse_unknown(self, config: Mapping[str, Any]) -> None:
        for key in _UNKNOWN_SCALES:
            if f"{self._name}.{key}" in self._file.metadata:
                raise UnsupportedModelError(
                    f"{self._file.path}: the field {self._name}.{key} is not supported."
                )
        head_dim = config["head_dim"]
        widths = {"attention.value_length": head_dim}
        if self._name != "phi3":
            widths["rope.dimension_count"] = head_dim
        for key, width in widths.items():
            if (found := self._size(key, width, least=0)) != width:
                raise UnsupportedModelError(
                    f"{self._file.path}: {self._name}.{key} is {found}, and heads "
                    f"are {head_dim} wide: not supported."
                )

    def _experts(self, num_experts: int) -> dict[str, Any]:
        config = {
            "num_experts": num_experts,
            "num_experts_per_tok": self._size("expert_used_count"),
            "moe_intermediate_size": self._shape("blk.0.ffn_gate_exps.weight", 3)[1],
            # Not in the file, but in every program that reads it.
            "norm_topk_prob": self._name != "qwen2moe",
        }
        if self._name == "qwen2moe":
            shared = self._shape("blk.0.ffn_gate_shexp.weight", 2)
            config["shared_expert_intermediate_size"] = shared[0]
        return config

    def _phi3(self, config: Mapping[str, Any]) -> dict[str, Any]:
        window = config["max_position_embeddings"]
        head_dim = config["head_dim"]
        return {
            "sliding_window": self._size("attention.sliding_window", 0, least=0),
            "partial_rotary_factor": self._size("rope.dimension_count", head_dim) / head_dim,
            "original_max_position_embeddings": self._size(
                "rope.scaling.original_context_length", window
            ),
        }

    def _gemma2(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "query_pre_attn_scalar": self._gemma_scalar(config),
            "attn_logit_softcapping": self._positive("attn_logit_softcapping", 50.0),
            "final_logit_softcapping": self._positive("final_logit_softcapping", 30.0),
            "sliding_window": self._size("attention.sliding_window", 4096, least=0),
            **self._sliding_pattern(2),
        }

    def _gemma3(self, config: Mapping[str, Any]) -> dict[str, Any]:
        window = self._size("attention.sliding_window", 0, least=0)
        return {
            "query_pre_attn_scalar": self._gemma_scalar(config),
            # 0 and an absent field stand for none.
            "final_logit_softcapping": self._fields.number(
                f"{self._name}.final_logit_softcapping", 0.0
            )
            or None,
            "sliding_window": window,
            "rope_local_base_freq": self._positive("rope.freq_base_swa", 10000.0),
            **(
                self._sliding_pattern(6)
                if window
                else {"layer_types": [FULL] * config["num_hidden_layers"]}
            ),
        }

    def _gemma_scalar(self, config: Mapping[str, Any]) -> int:
        if config["num_hidden_layers"] == _27B_LAYERS[self._name]:
            return int(config["hidden_size"] // config["num_attention_heads"])
        return int(config["head_dim"])

    def _sliding_pattern(self, default: int) -> dict[str, Any]:
        key = "attention.sliding_window_pattern"
        pattern = self._file.metadata.get(f"{self._name}.{key}")
        if isinstance(pattern, list):
            return {"layer_types": [SLIDING if slides else FULL for slides in pattern]}
        return {"sliding_window_pattern": self._size(key, default)}

    def _rope_scaling(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        file = self._file
        if ROPE_FACTORS in file.tensors:
            return self._llama3_scaling(config)
        if LONG_FACTORS in file.tensors:
            self._shape(LONG_FACTORS, 1)
            self._shape(SHORT_FACTORS, 1)
            longrope = {
                "rope_type": "longrope",
                "long_factor": file.dequantize(LONG_FACTORS).tolist(),
                "short_factor": file.dequantize(SHORT_FACTORS).tolist(),
            }
            if f"{self._name}.rope.scaling.attn_factor" in file.metadata:
                longrope["attention_factor"] = self._positive("rope.scaling.attn_factor")
            return longrope
        kind = self._fields.text(f"{self._name}.rope.scaling.type", "none")
        if kind == "none":
            return None
        if kind == "linear":
            return {"rope_type": "linear", "factor": self._positive("rope.scaling.factor")}
        if kind == "yarn" and self._positive("rope.scaling.attn_factor", 1.0) == 1.0:
            return {
                "rope_type": "yarn",
                "factor": self._positive("rope.scaling.factor"),
                "original_max_position_embeddings": self._size(
                    "rope.scaling.original_context_length", config["max_position_embeddings"]
                ),
            }
        raise UnsupportedModelError(f"{file.path}: the rope scaling {kind!r} is not supported.")

    def _llama3_scaling(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Llama 3's scaling is kept as its result, one divisor a frequency: finds the parameters
        that give it."""
        divisors = torch.from_numpy(self._file.dequantize(ROPE_FACTORS))
        theta, head_dim = float(config["rope_theta"]), int(config["head_dim"])
        if divisors.shape != (head_dim // 2,):
            raise ModelLoadError(
                f"{self._file.path}: the tensor {ROPE_FACTORS} has the shape "
                f"{list(divisors.shape)}, and each head has {head_dim // 2} frequencies."
            )
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
        raise UnsupportedModelError(
            f"{self._file.path}: its rope frequency factors are of no known form."
        )
