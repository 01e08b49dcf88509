"""`RopeConfig`: how positions become angles, read from config.json. Free of torch.

Both generations of keys are read: `rope_scaling` with `type`, and `rope_parameters` with
`rope_type`; where a file has both, the first one counts, as in transformers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.config_fields import ConfigFields

RopeKind = Literal["default", "linear", "dynamic", "llama3", "yarn", "longrope"]


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding: a base `theta` and one of the known ways to stretch it.

    - linear: all angles divided by `factor`.
    - dynamic (NTK): the base grows with the window that is served.
    - llama3: long waves divided by `factor`, short ones kept, blended in between by
      `low_freq_factor` and `high_freq_factor`.
    - yarn (https://arxiv.org/abs/2309.00071): a ramp between kept and divided angles, from
      `beta_fast` to `beta_slow` rotations within the original window.
    - longrope (https://arxiv.org/abs/2402.13753): one divisor a frequency, from
      `short_factors` or `long_factors` by the window that is served.

    `attention_factor` multiplies cosines and sines; only the first
    `partial_rotary_factor` of each head turns."""

    theta: float
    kind: RopeKind = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192
    partial_rotary_factor: float = 1.0
    attention_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()

    def rotary_dim(self, head_dim: int) -> int:
        """How many elements of a head turn."""
        return int(head_dim * self.partial_rotary_factor)

    def max_positions(self, max_position_embeddings: int) -> int:
        """How far the model may be used: `max_position_embeddings`, unless the scaling is one
        that reaches `factor` times the trained window while that field stays what it was."""
        if self.kind in ("dynamic", "yarn"):
            stretched = int(self.original_max_position_embeddings * self.factor)
            return max(max_position_embeddings, stretched)
        return max_position_embeddings


def read_rope(fields: ConfigFields, head_dim: int, layer_type: str | None = None) -> RopeConfig:
    """The rope of a model, or of its layers of `layer_type` where each type has its own.
    Raises UnsupportedModelError for an unknown kind, ModelLoadError for senseless fields."""
    parameters = fields.mapping("rope_scaling") or fields.mapping("rope_parameters")
    if layer_type is not None:
        parameters = ConfigFields(parameters).mapping(layer_type)
    if any(isinstance(value, Mapping) for value in parameters.values()):
        raise UnsupportedModelError(
            "rope_parameters that differ by layer type are not supported for this architecture."
        )
    return _read_parameters(fields, parameters, head_dim)


def _read_parameters(
    fields: ConfigFields, parameters: Mapping[str, Any], head_dim: int
) -> RopeConfig:
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind in ("su", "yarn") and "short_factor" in parameters:
        kind = "longrope"  # what early Phi-3 files call it
    if kind not in get_args(RopeKind):
        raise UnsupportedModelError(
            f"The rope type {kind!r} is not supported; "
            f"supported are: {', '.join(get_args(RopeKind))}."
        )
    values = ConfigFields({"rope_theta": fields.values["rope_theta"], **parameters})
    theta = values.positive("rope_theta")
    partial = values.number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0))
    if not 0 < partial <= 1 or int(head_dim * partial) < 2 or int(head_dim * partial) % 2:
        raise ModelLoadError(f"config.json: partial_rotary_factor cannot be {partial}.")
    window = fields.size("max_position_embeddings")
    # A field of its own, beside the rope's, counts first: Phi-3 keeps it there.
    original = fields.size(
        "original_max_position_embeddings",
        values.size("original_max_position_embeddings", window),
    )
    match kind:
        case "default":
            return RopeConfig(theta, partial_rotary_factor=partial)
        case "linear":
            return RopeConfig(theta, kind, values.positive("factor"), partial_rotary_factor=partial)
        case "dynamic":
            if int(head_dim * partial) == 2:
                raise ModelLoadError("config.json: rope type dynamic needs more than one angle.")
            return RopeConfig(
                theta,
                kind,
                values.positive("factor"),
                original_max_position_embeddings=window,
                partial_rotary_factor=partial,
            )
        case "llama3":
            low, high = values.positive("low_freq_factor"), values.positive("high_freq_factor")
            if low >= high:
                raise ModelLoadError(
                    f"config.json: high_freq_factor ({high}) must be above low_freq_factor ({low})."
                )
            return RopeConfig(
                theta,
                kind,
                values.positive("factor"),
                low,
                high,
                original,
                partial,
            )
        case "yarn":
            factor = values.positive("factor", window / original)
            if theta <= 1.0:
                raise ModelLoadError(f"config.json: rope_theta cannot be {theta} with yarn.")
            return RopeConfig(
                theta,
                kind,
                factor,
                original_max_position_embeddings=original,
                partial_rotary_factor=partial,
                attention_factor=_yarn_attention_factor(values, factor),
                beta_fast=_rotations(values, "beta_fast", 32.0),
                beta_slow=_rotations(values, "beta_slow", 1.0),
                truncate=values.values.get("truncate") is not False,
            )
        case _:
            return _longrope(values, theta, partial, window, original, int(head_dim * partial))


def _rotations(values: ConfigFields, name: str, default: float) -> float:
    """0 stands for absent."""
    return values.positive(name, default) if values.values.get(name) else default


def _yarn_attention_factor(values: ConfigFields, factor: float) -> float:
    """As given, else 0.1 ln(factor) + 1; DeepSeek's two further fields weigh the logarithm
    above and below a fraction line."""
    given = values.optional_positive("attention_factor")
    if given is not None:
        return given

    def grown(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    above, below = values.number("mscale", 0.0), values.number("mscale_all_dim", 0.0)
    return grown(above) / grown(below) if above > 0 and below > 0 else grown(1.0)


def _longrope(
    values: ConfigFields,
    theta: float,
    partial: float,
    window: int,
    original: int,
    rotary_dim: int,
) -> RopeConfig:
    factor = values.positive("factor", window / original)
    attention_factor = values.optional_positive("attention_factor")
    if attention_factor is None:
        if original == 1:
            raise ModelLoadError("config.json: original_max_position_embeddings cannot be 1.")
        attention_factor = (
            1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
        )
    factors = {name: values.positives(name) for name in ("short_factor", "long_factor")}
    for name, found in factors.items():
        if len(found) != rotary_dim // 2:
            raise ModelLoadError(
                f"config.json: {name} has {len(found)} entries, and each head has "
                f"{rotary_dim // 2} frequencies."
            )
    return RopeConfig(
        theta,
        "longrope",
        factor,
        original_max_position_embeddings=original,
        partial_rotary_factor=partial,
        attention_factor=attention_factor,
        short_factors=factors["short_factor"],
        long_factors=factors["long_factor"],
    )
