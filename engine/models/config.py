"""`ModelConfig`: a model's shape, read from Hugging Face's config.json. Free of torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.families import Windows, find_family, with_defaults

RopeKind = Literal["default", "linear", "llama3"]
_ROPE_KINDS = ("default", "linear", "llama3")
DEFAULT_MAX_MODEL_LEN = 8192


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding. `factor` is used by linear and llama3, the rest by llama3 alone."""

    theta: float
    kind: RopeKind = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a decoder. Sizes are in elements; `layer_windows` has one entry a layer."""

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
    tie_word_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    layer_windows: Windows
    eos_token_ids: tuple[int, ...]
    dtype: str | None = None
    """The dtype that the checkpoint was made in, when config.json says so."""

    def max_model_len(self, requested: int | None) -> int:
        """Prompt and answer together: as requested, else the model's window, at most 8192.
        Raises ModelLoadError for more than the model has positions."""
        if requested is not None and requested > self.max_position_embeddings:
            raise ModelLoadError(
                f"max_model_len is {requested}, and the model has "
                f"{self.max_position_embeddings} positions."
            )
        return requested or min(self.max_position_embeddings, DEFAULT_MAX_MODEL_LEN)


def read_model_config(
    config: Mapping[str, Any], generation_config: Mapping[str, Any] | None = None
) -> ModelConfig:
    """Reads config.json's fields (and the EOS ids of generation_config.json).

    Raises UnsupportedModelError for an architecture or an option that the decoder does not
    have, ModelLoadError for a field that is missing or senseless; both name it."""
    architecture = _architecture(config)
    family = find_family(architecture)
    fields = _Fields(with_defaults(family, config))
    _refuse_unknown_forms(fields)
    num_heads = fields.size("num_attention_heads")
    num_layers = fields.size("num_hidden_layers")
    attention_bias = fields.flag("attention_bias")
    result = ModelConfig(
        architecture=architecture,
        vocab_size=fields.size("vocab_size"),
        hidden_size=fields.size("hidden_size"),
        intermediate_size=fields.size("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=fields.size("num_key_value_heads", num_heads),
        head_dim=fields.size("head_dim", fields.size("hidden_size") // num_heads),
        max_position_embeddings=fields.size("max_position_embeddings"),
        rms_norm_eps=fields.number("rms_norm_eps"),
        rope=_read_rope(fields),
        tie_word_embeddings=fields.flag("tie_word_embeddings"),
        qkv_bias=attention_bias if family.qkv_bias is None else family.qkv_bias,
        o_bias=attention_bias if family.o_bias is None else family.o_bias,
        mlp_bias=fields.flag("mlp_bias"),
        qk_norm=family.qk_norm,
        layer_windows=family.windows(fields.values, num_layers),
        eos_token_ids=read_eos_token_ids(config, generation_config),
        dtype=config.get("dtype") or config.get("torch_dtype"),
    )
    if num_heads % result.num_kv_heads:
        raise ModelLoadError(
            f"config.json: num_attention_heads ({num_heads}) is no multiple of "
            f"num_key_value_heads ({result.num_kv_heads})."
        )
    if len(result.layer_windows) != num_layers:
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
        ids.update(value if isinstance(value, list) else () if value is None else (value,))
    return tuple(sorted(ids))


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        raise UnsupportedModelError(
            "config.json names no architecture (key 'architectures'), "
            f"model_type is {config.get('model_type')!r}."
        )
    return str(names[0])


def _refuse_unknown_forms(fields: _Fields) -> None:
    if (activation := fields.values["hidden_act"]) != "silu":
        raise UnsupportedModelError(f"hidden_act {activation!r} is not supported; silu is.")
    quantization = fields.values.get("quantization_config")
    if quantization:
        raise UnsupportedModelError(
            f"quantization_config (method {quantization.get('quant_method')!r}) is not supported; "
            "use plain safetensors weights or a GGUF file."
        )


def _read_rope(fields: _Fields) -> RopeConfig:
    """`rope_parameters` (newer) or `rope_scaling`; the kind under `rope_type` or `type`."""
    parameters = fields.values.get("rope_parameters") or fields.values.get("rope_scaling") or {}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in _ROPE_KINDS:
        raise UnsupportedModelError(
            f"The rope type {kind!r} is not supported; supported are: {', '.join(_ROPE_KINDS)}."
        )
    values = _Fields({"rope_theta": fields.values["rope_theta"], **parameters})
    if values.number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0)) != 1.0:
        raise UnsupportedModelError("A partial_rotary_factor other than 1 is not supported.")
    theta = values.number("rope_theta")
    if kind == "default":
        return RopeConfig(theta)
    if kind == "linear":
        return RopeConfig(theta, "linear", values.number("factor"))
    return RopeConfig(
        theta,
        "llama3",
        values.number("factor"),
        values.number("low_freq_factor"),
        values.number("high_freq_factor"),
        values.size("original_max_position_embeddings", fields.size("max_position_embeddings")),
    )


@dataclass(frozen=True, slots=True)
class _Fields:
    """Typed reads of a JSON object; null counts as absent."""

    values: dict[str, Any]

    def size(self, name: str, default: int | None = None) -> int:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelLoadError(f"config.json: {name} must be a positive integer, not {value!r}.")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelLoadError(f"config.json: {name} must be a number, not {value!r}.")
        return float(value)

    def flag(self, name: str) -> bool:
        return bool(self._get(name, False))

    def _get(self, name: str, default: object) -> object:
        value = self.values.get(name)
        if value is None:
            value = default
        if value is None:
            raise ModelLoadError(f"config.json lacks {name}.")
        return cast(object, value)
