"""The model families that the decoder can be, each as its differences from the common form.

The common form is Llama's: norm, attention, residual, norm, gated MLP, residual. A new family
that is a decoder of this form is one more entry here; what the differences below cannot say
needs work in `decoder` first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.errors import UnsupportedModelError
from engine.models.layer_kinds import (
    Config,
    Windows,
    every_layer,
    gemma_windows,
    no_window,
    qwen2_moe_windows,
    qwen2_windows,
    qwen3_moe_windows,
    smollm3_windows,
)


@dataclass(frozen=True, slots=True)
class Family:
    """How a family differs. `defaults` stand for keys that its config.json may leave out;
    a bias that is None follows the key `attention_bias`.

    - `qk_norm`: each query and key head is normed before it is rotated.
    - `is_gemma`: norm weights are kept less one, embeddings are scaled by the root of the hidden
      size, and an activation may be named under `hidden_activation`.
    - `post_norms`: the outputs of attention and MLP are normed before they are added.
    - `local_rope`: layers of sliding attention have a rope of their own.
    - `partial_rope`: only a part of each head may turn.
    - `inner_size_key`: the key of an expert's size, where MLPs are mixtures of experts."""

    architecture: str
    model_type: str
    qkv_bias: bool | None = None
    o_bias: bool | None = None
    qk_norm: bool = False
    windows: Callable[[Config, int], Windows] = no_window
    is_gemma: bool = False
    post_norms: bool = False
    local_rope: bool = False
    partial_rope: bool = False
    inner_size_key: str | None = None
    defaults: Config = field(default_factory=dict)


_COMMON_DEFAULTS: Config = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}
_QWEN_WINDOW: Config = {
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
_GEMMA: Config = {
    "hidden_act": "gelu_pytorch_tanh",
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
_GEMMA2: Config = {**_GEMMA, "query_pre_attn_scalar": 256, "sliding_window": 4096}
_SPARSE_LAYERS: Config = {"decoder_sparse_step": 1, "norm_topk_prob": False}

FAMILIES: Mapping[str, Family] = {
    family.architecture: family
    for family in (
        Family("LlamaForCausalLM", "llama", defaults={"max_position_embeddings": 2048}),
        Family(
            "MistralForCausalLM",
            "mistral",
            qkv_bias=False,
            o_bias=False,
            windows=every_layer,
            defaults={
                "max_position_embeddings": 131072,
                "num_key_value_heads": 8,
                "sliding_window": 4096,
            },
        ),
        Family(
            "MixtralForCausalLM",
            "mixtral",
            qkv_bias=False,
            o_bias=False,
            windows=every_layer,
            inner_size_key="intermediate_size",
            defaults={
                "max_position_embeddings": 131072,
                "num_key_value_heads": 8,
                "sliding_window": None,
                "rms_norm_eps": 1e-5,
                "rope_theta": 1e6,
                "num_experts": 8,
                "num_experts_per_tok": 2,
                "norm_topk_prob": True,
                "decoder_sparse_step": 1,
            },
        ),
        Family(
            "Qwen2ForCausalLM",
            "qwen2",
            qkv_bias=True,
            o_bias=False,
            windows=qwen2_windows,
            defaults=_QWEN_WINDOW,
        ),
        Family(
            "Qwen2MoeForCausalLM",
            "qwen2_moe",
            qkv_bias=True,
            o_bias=False,
            windows=qwen2_moe_windows,
            inner_size_key="moe_intermediate_size",
            defaults={
                **_QWEN_WINDOW,
                **_SPARSE_LAYERS,
                "moe_intermediate_size": 1408,
                "shared_expert_intermediate_size": 5632,
                "num_experts": 60,
                "num_experts_per_tok": 4,
            },
        ),
        Family(
            "Qwen3ForCausalLM",
            "qwen3",
            qk_norm=True,
            windows=qwen2_windows,
            defaults={**_QWEN_WINDOW, "head_dim": 128},
        ),
        Family(
            "Qwen3MoeForCausalLM",
            "qwen3_moe",
            qk_norm=True,
            windows=qwen3_moe_windows,
            inner_size_key="moe_intermediate_size",
            defaults={
                **_QWEN_WINDOW,
                **_SPARSE_LAYERS,
                "num_key_value_heads": 4,
                "moe_intermediate_size": 768,
                "num_experts": 128,
                "num_experts_per_tok": 8,
            },
        ),
        Family(
            "Phi3ForCausalLM",
            "phi3",
            qkv_bias=False,
            o_bias=False,
            windows=every_layer,
            partial_rope=True,
            defaults={
                "max_position_embeddings": 4096,
                "original_max_position_embeddings": 4096,
                "rms_norm_eps": 1e-5,
                "sliding_window": None,
            },
        ),
        Family("GemmaForCausalLM", "gemma", is_gemma=True, defaults=_GEMMA),
        Family(
            "Gemma2ForCausalLM",
            "gemma2",
            is_gemma=True,
            post_norms=True,
            windows=gemma_windows,
            defaults={
                **_GEMMA2,
                "sliding_window_pattern": 2,
                "attn_logit_softcapping": 50.0,
                "final_logit_softcapping": 30.0,
            },
        ),
        Family(
            "Gemma3ForCausalLM",
            "gemma3_text",
            qk_norm=True,
            is_gemma=True,
            post_norms=True,
            local_rope=True,
            windows=gemma_windows,
            defaults={
                **_GEMMA2,
                # The text part of a model that sees images leaves out even sizes.
                "vocab_size": 262208,
                "hidden_size": 2304,
                "intermediate_size": 9216,
                "num_hidden_layers": 26,
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "max_position_embeddings": 131072,
                "sliding_window_pattern": 6,
                "rope_theta": 1e6,
                "rope_local_base_freq": 1e4,
            },
        ),
        Family(
            "SmolLM3ForCausalLM",
            "smollm3",
            windows=smollm3_windows,
            defaults={
                "max_position_embeddings": 32768,
                "num_key_value_heads": 4,
                "rope_theta": 2e6,
                "tie_word_embeddings": True,
                "use_sliding_window": False,
                "sliding_window": None,
                "no_rope_layer_interval": 4,
            },
        ),
    )
}


TEXT_PARTS: Mapping[str, str] = {"Gemma3ForConditionalGeneration": "Gemma3ForCausalLM"}
"""Models that also see images, by the architecture of the part that reads and writes text. That
part alone is served."""
SUPPORTED = ", ".join(sorted((*FAMILIES, *TEXT_PARTS)))


def is_known(architecture: str) -> bool:
    """Whether the decoder can be a model of this architecture."""
    return architecture in FAMILIES or architecture in TEXT_PARTS


def find_family(architecture: str) -> Family:
    """Raises UnsupportedModelError, which names the architecture and lists those supported."""
    family = FAMILIES.get(TEXT_PARTS.get(architecture, architecture))
    if family is None:
        raise UnsupportedModelError(
            f"The architecture {architecture!r} is not supported; supported are: {SUPPORTED}."
        )
    return family


def with_defaults(family: Family, config: Config) -> dict[str, Any]:
    """`config` with the family's defaults under it."""
    values = {**_COMMON_DEFAULTS, **family.defaults, **config}
    if family.is_gemma and config.get("hidden_activation") is not None:
        values["hidden_act"] = config["hidden_activation"]
    if config.get("num_local_experts") is not None:  # another name of the same number
        values["num_experts"] = config["num_local_experts"]
    return values
