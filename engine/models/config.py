"""`ModelConfig`: a model's shape, read from Hugging Face's config.json. Free of torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.config_fields import MAX_LAYERS, ConfigFields, is_integer
from engine.models.families import TEXT_PARTS, Family, find_family, with_defaults
from engine.models.layer_kinds import FULL, SLIDING, Windows, layer_types, rotating_layers
from engine.models.rope_config import RopeConfig, read_rope

Activation = Literal["silu", "gelu", "gelu_pytorch_tanh"]
LayerRopes = tuple[RopeConfig | None, ...]
"""Per layer: how it rotates queries and keys; None is not at all."""
DEFAULT_MAX_MODEL_LEN = 8192
_BESIDE_THE_TEXT_PART = ("dtype", "torch_dtype", "tie_word_embeddings", "quantization_config")
"""Fields that a model with several parts keeps once for all of them."""


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """A mixture of experts: each token goes through `num_chosen` of `num_experts` MLPs of
    `intermediate_size`, weighted by the router's probabilities (`normalizes`: which then sum to
    one), and through a shared one of `shared_intermediate_size`, if that is not None.
    `is_sparse` says for each layer whether it has experts or the plain MLP."""

    num_experts: int
    num_chosen: int
    intermediate_size: int
    normalizes: bool
    shared_intermediate_size: int | None
    is_sparse: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a decoder. Sizes are in elements; `layer_windows` and `layer_ropes` have one
    entry a layer."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: RopeConfig
    """That of the layers with full attention, where layers differ."""
    layer_ropes: LayerRopes
    tie_word_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    layer_windows: Windows
    eos_token_ids: tuple[int, ...]
    dtype: str | None = None
    """The dtype that the checkpoint was made in, when config.json says so."""
    attention_scale: float = 1.0
    """What products of queries and keys are multiplied with."""
    activation: Activation = "silu"
    norm_offset: float = 0.0
    """What is added to the norms' stored weights."""
    post_norms: bool = False
    """Whether the outputs of attention and MLP are normed before they are added."""
    embedding_scale: float | None = None
    attention_soft_cap: float | None = None
    logits_soft_cap: float | None = None
    experts: ExpertsConfig | None = None

    @property
    def is_plain(self) -> bool:
        """Whether every layer is exactly norm, QKV (perhaps with bias), per-head norm of queries
        and keys (if `qk_norm`), rope over whole heads, attention (perhaps in a window), output,
        residual, norm, gate and up, silu(gate) * up, down, residual: no soft cap, no norm
        behind, no scaled embedding, no experts, one rope for all layers."""
        return (
            all(rope == self.rope for rope in self.layer_ropes)
            and self.rope.partial_rotary_factor == 1.0
            and self.activation == "silu"
            and self.norm_offset == 0.0
            and not self.post_norms
            and self.embedding_scale is None
            and self.attention_soft_cap is None
            and self.logits_soft_cap is None
            and self.experts is None
        )

    def max_model_len(self, requested: int | None) -> int:
        """Prompt and answer together: as requested, else the model's window, at most 8192.
        Raises ModelLoadError for more than the model has positions."""
        return choose_max_model_len(
            requested,
            self.max_position_embeddings,
            self.rope.max_positions(self.max_position_embeddings),
        )


def choose_max_model_len(
    requested: int | None, window: int, num_positions: int | None = None
) -> int:
    """Prompt and answer together: as requested, up to `num_positions` (or `window`), else the
    window, at most 8192. Raises ModelLoadError for more."""
    if requested is not None and requested > (num_positions or window):
        raise ModelLoadError(
            f"max_model_len is {requested}, and the model has {num_positions or window} positions."
        )
    return requested or min(window, DEFAULT_MAX_MODEL_LEN)


def read_model_config(
    config: Mapping[str, Any], generation_config: Mapping[str, Any] | None = None
) -> ModelConfig:
    """Reads config.json's fields (and the EOS ids of generation_config.json).

    Raises UnsupportedModelError for an architecture or an option that the decoder does not
    have, ModelLoadError for a field that is missing or senseless; both name it."""
    architecture = read_architecture(config)
    family = find_family(architecture)
    if architecture in TEXT_PARTS:
        config = _text_part(config)
    fields = ConfigFields(with_defaults(family, config))
    _refuse_unknown_forms(fields)
    num_heads = fields.size("num_attention_heads")
    num_layers = fields.size("num_hidden_layers", most=MAX_LAYERS)
    hidden_size = fields.size("hidden_size")
    head_dim = fields.size("head_dim", hidden_size // num_heads)
    attention_bias = fields.flag("attention_bias")
    rope, layer_ropes = _read_ropes(fields, family, num_layers, head_dim)
    result = ModelConfig(
        architecture=architecture,
        vocab_size=fields.size("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=fields.size("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=fields.size("num_key_value_heads", num_heads),
        head_dim=head_dim,
        max_position_embeddings=fields.size("max_position_embeddings"),
        rms_norm_eps=fields.positive("rms_norm_eps"),
        rope=rope,
        layer_ropes=layer_ropes,
        tie_word_embeddings=fields.flag("tie_word_embeddings"),
        qkv_bias=_first(fields.values.get("qkv_bias"), family.qkv_bias, attention_bias),
        o_bias=_first(family.o_bias, attention_bias),
        mlp_bias=fields.flag("mlp_bias"),
        qk_norm=family.qk_norm,
        layer_windows=family.windows(fields.values, num_layers),
        eos_token_ids=read_eos_token_ids(config, generation_config),
        dtype=config.get("dtype") or config.get("torch_dtype"),
        attention_scale=fields.positive("query_pre_attn_scalar", head_dim) ** -0.5,
        activation=fields.values["hidden_act"],
        norm_offset=1.0 if family.is_gemma else 0.0,
        post_norms=family.post_norms,
        embedding_scale=hidden_size**0.5 if family.is_gemma else None,
        attention_soft_cap=fields.optional_positive("attn_logit_softcapping"),
        logits_soft_cap=fields.optional_positive("final_logit_softcapping"),
        experts=_read_experts(fields, family, num_layers),
    )
    if num_heads % result.num_kv_heads:
        raise ModelLoadError(
            f"config.json: num_attention_heads ({num_heads}) is no multiple of "
            f"num_key_value_heads ({result.num_kv_heads})."
        )
    if len(result.layer_windows) != num_layers or len(layer_ropes) != num_layers:
        raise ModelLoadError("config.json: layer_types does not have one entry a layer.")
    return result


def read_model_folder(folder: Path) -> ModelConfig:
    """`read_model_config` of a folder's config.json and generation_config.json."""
    config = read_json(folder / "config.json")
    generation = folder / "generation_config.json"
    return read_model_config(config, read_json(generation) if generation.exists() else None)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises ModelLoadError, naming the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelLoadError(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise ModelLoadError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path} does not hold a JSON object.")
    return value


def read_eos_token_ids(
    config: Mapping[str, Any], generation_config: Mapping[str, Any] | None = None
) -> tuple[int, ...]:
    """Every id that ends an answer, ascending: those of both files together. A file may give
    one id, a list, or none."""
    ids: set[int] = set()
    for source in (generation_config or {}, config):
        value = source.get("eos_token_id")
        found = value if isinstance(value, list) else [] if value is None else [value]
        # -1 is how some files write that there is none.
        if not all(is_integer(item) and item >= -1 for item in found):
            raise ModelLoadError(f"eos_token_id must be an id or a list of ids, not {value!r}.")
        ids.update(item for item in found if item >= 0)
    return tuple(sorted(ids))


def read_architecture(config: Mapping[str, Any]) -> str:
    """The first of `architectures`. Raises UnsupportedModelError when there is none."""
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        raise UnsupportedModelError(
            "config.json names no architecture (key 'architectures'), "
            f"model_type is {config.get('model_type')!r}."
        )
    return str(names[0])


def _text_part(config: Mapping[str, Any]) -> dict[str, Any]:
    """What describes the text part of a model that has others, with what stands beside it."""
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        raise ModelLoadError("config.json lacks text_config.")
    beside = {key: config[key] for key in _BESIDE_THE_TEXT_PART if config.get(key) is not None}
    return {**text, **beside, "eos_token_id": list(read_eos_token_ids(config, text))}


def _first(*values: bool | None) -> bool:
    return next(bool(value) for value in values if value is not None)


def _refuse_unknown_forms(fields: ConfigFields) -> None:
    if (activation := fields.values["hidden_act"]) not in get_args(Activation):
        raise UnsupportedModelError(
            f"hidden_act {activation!r} is not supported; "
            f"supported are: {', '.join(get_args(Activation))}."
        )
    if fields.values.get("use_bidirectional_attention"):
        raise UnsupportedModelError("use_bidirectional_attention is not supported.")
    quantization = fields.mapping("quantization_config")
    if quantization:
        raise UnsupportedModelError(
            f"quantization_config (method {quantization.get('quant_method')!r}) is not supported; "
            "use plain safetensors weights or a GGUF file."
        )


def _read_ropes(
    fields: ConfigFields, family: Family, num_layers: int, head_dim: int
) -> tuple[RopeConfig, LayerRopes]:
    if not family.local_rope:
        rope = read_rope(fields, head_dim)
        if rope.partial_rotary_factor != 1.0 and not family.partial_rope:
            raise UnsupportedModelError(
                "A partial_rotary_factor other than 1 is not supported for this architecture."
            )
        turns = rotating_layers(fields.values, num_layers)
        return rope, tuple(rope if turning else None for turning in turns)
    # Older files keep two bases side by side, and a scaling of the layers with full attention.
    nested = ConfigFields(fields.mapping("rope_parameters"))
    scaling = fields.mapping("rope_scaling")
    by_type = {
        FULL: {**nested.mapping(FULL), **scaling},
        SLIDING: {
            "rope_theta": fields.values["rope_local_base_freq"],
            **nested.mapping(SLIDING),
        },
    }
    whole = ConfigFields({**fields.values, "rope_scaling": None, "rope_parameters": by_type})
    ropes = {kind: read_rope(whole, head_dim, kind) for kind in by_type}
    return ropes[FULL], tuple(ropes[kind] for kind in layer_types(fields.values, num_layers))


def _read_experts(fields: ConfigFields, family: Family, num_layers: int) -> ExpertsConfig | None:
    if family.inner_size_key is None:
        return None
    every = fields.size("decoder_sparse_step")
    dense = frozenset(
        fields.integers("mlp_only_layers") if fields.values.get("mlp_only_layers") else ()
    )
    num_experts, num_chosen = fields.size("num_experts"), fields.size("num_experts_per_tok")
    if num_chosen > num_experts:
        raise ModelLoadError(
            f"config.json: num_experts_per_tok ({num_chosen}) is more than "
            f"num_experts ({num_experts})."
        )
    shared = "shared_expert_intermediate_size"
    return ExpertsConfig(
        num_experts=num_experts,
        num_chosen=num_chosen,
        intermediate_size=fields.size(family.inner_size_key),
        normalizes=fields.flag("norm_topk_prob"),
        shared_intermediate_size=fields.size(shared) if shared in fields.values else None,
        is_sparse=tuple(
            layer not in dense and (layer + 1) % every == 0 for layer in range(num_layers)
        ),
    )
