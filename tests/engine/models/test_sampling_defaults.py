"""generation_config.json's say in how tokens are chosen."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.errors import ModelLoadError
from engine.models.registry import load_model
from engine.models.sampling_defaults import read_sampling_defaults
from tests.support.gguf_files import write_gguf

NOT_FINITE = (math.inf, -math.inf, math.nan, 10**400)


@pytest.mark.parametrize(
    ("content", "defaults"),
    [
        ({}, {}),
        ({"eos_token_id": [1, 2], "max_length": 20, "do_sample": True}, {}),
        (
            {
                "do_sample": True,
                "temperature": 0.7,
                "top_p": 0.8,
                "top_k": 20.0,
                "min_p": None,
                "repetition_penalty": 1.1,
            },
            {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.1},
        ),
        ({"temperature": 0.6}, {"temperature": 0.6}),
        ({"do_sample": False, "temperature": 0.6}, {"temperature": 0.0}),
    ],
)
def test_fields(content: dict[str, Any], defaults: dict[str, float]) -> None:
    assert read_sampling_defaults(content) == defaults


@pytest.mark.parametrize(
    "content",
    [
        {"temperature": 9.0},
        {"top_p": "high"},
        {"top_k": True},
        {"min_p": -1},
        *({name: value} for name in ("top_k", "temperature") for value in NOT_FINITE),
    ],
)
def test_senseless_values_are_named(content: dict[str, Any]) -> None:
    (name,) = content
    with pytest.raises(ModelLoadError, match=name):
        read_sampling_defaults(content)


@pytest.mark.parametrize("name", ["llama", "olmo2"])
def test_defaults_of_a_folder(name: str, tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    for file in tiny_model(name).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = EngineConfig(model=tmp_path, dtype="float32", device="cpu")
    assert load_model(config).sampling_defaults == {}
    (tmp_path / "generation_config.json").write_text('{"top_k": 5}', "utf-8")
    assert load_model(config).sampling_defaults == {"top_k": 5}
    (tmp_path / "generation_config.json").unlink()
    assert load_model(config).sampling_defaults == {}


def test_defaults_of_a_gguf_file(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    """Read directly, and through a converted copy."""
    wanted: dict[str, Any] = {"general__sampling__temp": 0.5, "general__sampling__top_k": 20}
    path = write_gguf(tmp_path / "m.gguf", tiny_model("llama"), **wanted)
    for cache_dir in (None, tmp_path / "cache"):
        config = EngineConfig(model=path, dtype="float32", device="cpu", cache_dir=cache_dir)
        assert load_model(config).sampling_defaults == {"temperature": 0.5, "top_k": 20}
