"""Reading rope settings: both generations of keys, every kind, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.config_fields import ConfigFields
from engine.models.rope_config import RopeConfig, read_rope

LLAMA3 = {
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
FACTORS = {"short_factor": [1, 2], "long_factor": [3.0, 4.0]}


def read(head_dim: int = 16, **changes: Any) -> RopeConfig:
    fields = {"rope_theta": 1e4, "max_position_embeddings": 2048, **changes}
    return read_rope(ConfigFields(fields), head_dim)


@pytest.mark.parametrize(
    ("changes", "rope"),
    [
        ({"rope_scaling": None, "rope_theta": 5e5}, RopeConfig(5e5)),
        ({"rope_parameters": None}, RopeConfig(1e4)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, RopeConfig(7.0)),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, RopeConfig(1e4, "linear", 4.0)),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2}}, RopeConfig(1e4, "linear", 2.0)),
        (
            {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
            RopeConfig(5e5, "llama3", 32.0, 1.0, 4.0, 8192),
        ),
        (
            {"rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", **LLAMA3}},
            RopeConfig(5e5, "llama3", 32.0, 1.0, 4.0, 8192),
        ),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
            RopeConfig(1e4, "dynamic", 2.0, original_max_position_embeddings=2048),
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 1.0, "beta_fast": 16, "truncate": False}},
            RopeConfig(
                1e4,
                "yarn",
                1.0,
                original_max_position_embeddings=2048,
                beta_fast=16.0,
                truncate=False,
            ),
        ),
        (
            {"partial_rotary_factor": 0.5},
            RopeConfig(1e4, partial_rotary_factor=0.5),
        ),
    ],
)
def test_old_and_new_forms(changes: dict[str, Any], rope: RopeConfig) -> None:
    assert read(**changes) == rope


@pytest.mark.parametrize(
    ("given", "attention_factor"),
    [
        ({"factor": 4.0}, 0.1 * 1.3862943611 + 1),
        ({"factor": 4.0, "attention_factor": 1.5}, 1.5),
        ({"factor": 4.0, "mscale": 2.0, "mscale_all_dim": 1.0}, 1.2772588722 / 1.1386294361),
    ],
)
def test_yarn_attention_factor(given: dict[str, Any], attention_factor: float) -> None:
    rope = read(rope_scaling={"type": "yarn", "original_max_position_embeddings": 512, **given})
    assert rope.attention_factor == pytest.approx(attention_factor)


@pytest.mark.parametrize("name", ["longrope", "su", "yarn"])
def test_longrope_under_all_its_names(name: str) -> None:
    """The trained window may stand beside the rope's own fields, as Phi-3 has it, and then
    counts first."""
    scaling = {"type": name, "original_max_position_embeddings": 2048, **FACTORS}
    rope = read(4, rope_scaling=scaling, original_max_position_embeddings=64)
    assert (rope.kind, rope.factor, rope.original_max_position_embeddings) == ("longrope", 32, 64)
    assert (rope.short_factors, rope.long_factors) == ((1.0, 2.0), (3.0, 4.0))
    # sqrt(1 + ln 32 / ln 64)
    assert rope.attention_factor == pytest.approx((1 + 5 / 6) ** 0.5)


def test_longrope_factors_must_fit_the_head() -> None:
    with pytest.raises(ModelLoadError, match=r"short_factor has 2 entries.*8 frequencies"):
        read(16, rope_scaling={"type": "longrope", **FACTORS})


@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_unknown_kind_is_named(key: str) -> None:
    with pytest.raises(UnsupportedModelError, match=r"'foo'.*default, linear, dynamic, llama3"):
        read(rope_scaling={key: "foo", "factor": 2.0})


@pytest.mark.parametrize("part", [0.0, 1.5, 0.2])
def test_senseless_partial_rope(part: float) -> None:
    with pytest.raises(ModelLoadError, match="partial_rotary_factor"):
        read(partial_rotary_factor=part)


def test_positions_of_a_stretched_window() -> None:
    """Dynamic and yarn reach beyond the field that says what the model was trained for; for the
    others that field is the stretched window already."""
    scaling = {"factor": 4.0}
    assert read(rope_scaling={"type": "dynamic", **scaling}).max_positions(2048) == 8192
    assert read(rope_scaling={"type": "linear", **scaling}).max_positions(2048) == 2048
    yarn = read(rope_scaling={"type": "yarn", "original_max_position_embeddings": 512, **scaling})
    assert yarn.max_positions(2048) == 2048
    assert yarn.max_positions(1024) == 2048


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "x"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("linear", "factor"),
        ("dynamic", "factor"),
        ("llama3", "factor"),
        ("llama3", "low_freq_factor"),
        ("llama3", "high_freq_factor"),
        ("yarn", "factor"),
        ("yarn", "attention_factor"),
        ("longrope", "attention_factor"),
        ("default", "rope_theta"),
    ],
)
def test_senseless_numbers_are_named(kind: str, name: str, value: object) -> None:
    parameters = {"rope_type": kind, **LLAMA3, **FACTORS, name: value}
    with pytest.raises(ModelLoadError, match=f"{name} must be a positive number"):
        read(4, rope_parameters=parameters)


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        (
            {**LLAMA3, "rope_type": "llama3", "low_freq_factor": 4.0},
            "must be above low_freq_factor",
        ),
        ({"rope_type": "yarn", "factor": 2.0, "rope_theta": 1.0}, "rope_theta cannot be 1.0"),
        ({"rope_type": "yarn", "factor": 2.0, "beta_slow": -1}, "beta_slow"),
        ({"rope_type": "longrope", "short_factor": [1, 0], "long_factor": [1, 1]}, "short_factor"),
        (
            {"rope_type": "longrope", **FACTORS, "original_max_position_embeddings": 1},
            "original_max_position_embeddings cannot be 1",
        ),
    ],
)
def test_numbers_that_give_no_angles_are_named(parameters: dict[str, Any], word: str) -> None:
    with pytest.raises(ModelLoadError, match=word):
        read(4, rope_parameters=parameters)


def test_dynamic_needs_two_angles() -> None:
    with pytest.raises(ModelLoadError, match="dynamic"):
        read(2, rope_scaling={"type": "dynamic", "factor": 2.0})
