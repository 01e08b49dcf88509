"""The model families that the decoder can be, each as its differences from the common form.

A new family that is a decoder of the same form is one more entry here; what is not in the common
form (another activation, another place for a norm) needs work in `decoder` first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.errors import UnsupportedModelError

Windows = tuple[int | None, ...]
"""Per layer: how many tokens a token attends to, itself included; None is all before it."""


def _no_window(config: Mapping[str, Any], num_layers: int) -> Windows:
    return (None,) * num_layers


def _every_layer(config: Mapping[str, Any], num_layers: int) -> Windows:
    window = config["sliding_window"]
    return (None if window is None else int(window),) * num_layers


def _upper_layers(config: Mapping[str, Any], num_layers: int) -> Windows:
    """Qwen: off unless `use_sliding_window`; then `layer_types`, or all layers from
    `max_window_layers` up."""
    window = config["sliding_window"]
    if not config["use_sliding_window"] or window is None:
        return (None,) * num_layers
    types = config.get("layer_types")
    if types is None:
        first = int(config["max_window_layers"])
        return tuple(int(window) if layer >= first else None for layer in range(num_layers))
    return tuple(int(window) if kind == "sliding_attention" else None for kind in types)


@dataclass(frozen=True, slots=True)
class Family:
    """How a family differs. `defaults` stand for keys that its config.json may leave out;
    a bias that is None follows the key `attention_bias`."""

    architecture: str
    model_type: str
    qkv_bias: bool | None = None
    o_bias: bool | None = None
    qk_norm: bool = False
    windows: Callable[[Mapping[str, Any], int], Windows] = _no_window
    defaults: Mapping[str, Any] = field(default_factory=dict)


_COMMON_DEFAULTS: Mapping[str, Any] = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}
_QWEN_WINDOW: Mapping[str, Any] = {
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}

FAMILIES: Mapping[str, Family] = {
    family.architecture: family
    for family in (
        Family("LlamaForCausalLM", "llama", defaults={"max_position_embeddings": 2048}),
        Family(
            "MistralForCausalLM",
            "mistral",
            qkv_bias=False,
            o_bias=False,
            windows=_every_layer,
            defaults={
                "max_position_embeddings": 131072,
                "num_key_value_heads": 8,
                "sliding_window": 4096,
            },
        ),
        Family(
            "Qwen2ForCausalLM",
            "qwen2",
            qkv_bias=True,
            o_bias=False,
            windows=_upper_layers,
            defaults=_QWEN_WINDOW,
        ),
        Family(
            "Qwen3ForCausalLM",
            "qwen3",
            qk_norm=True,
            windows=_upper_layers,
            defaults={**_QWEN_WINDOW, "head_dim": 128},
        ),
    )
}


def find_family(architecture: str) -> Family:
    """Raises UnsupportedModelError, which names the architecture and lists those supported."""
    family = FAMILIES.get(architecture)
    if family is None:
        supported = ", ".join(sorted(FAMILIES))
        raise UnsupportedModelError(
            f"The architecture {architecture!r} is not supported; supported are: {supported}."
        )
    return family


def with_defaults(family: Family, config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with the family's defaults under it."""
    return {**_COMMON_DEFAULTS, **family.defaults, **config}
