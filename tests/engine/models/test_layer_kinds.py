"""Which layers slide and which rotate, where files list them and where they give a rule. (The
windows of each family are tested with the configuration.)"""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.layer_kinds import FULL, SLIDING, gemma_windows, layer_types, rotating_layers


def test_layer_types_by_pattern_and_as_listed() -> None:
    assert layer_types({"sliding_window_pattern": 3}, 5) == (
        SLIDING,
        SLIDING,
        FULL,
        SLIDING,
        SLIDING,
    )
    assert layer_types({"layer_types": [FULL, SLIDING]}, 2) == (FULL, SLIDING)
    assert gemma_windows({"layer_types": [FULL, SLIDING], "sliding_window": 7}, 2) == (None, 7)
    with pytest.raises(UnsupportedModelError, match="chunked_attention"):
        layer_types({"layer_types": ["chunked_attention"]}, 1)


@pytest.mark.parametrize(
    ("config", "turns"),
    [
        ({}, (True, True, True, True, True)),
        ({"no_rope_layer_interval": 4}, (True, True, True, False, True)),
        (
            {"no_rope_layer_interval": 4, "no_rope_layers": [0, 1, 0, 1, 1]},
            (False, True) * 2 + (True,),
        ),
        ({"no_rope_layer_interval": 4, "no_rope_layers": [1] * 6}, (True,) * 5),
    ],
)
def test_rotating_layers(config: dict[str, Any], turns: tuple[bool, ...]) -> None:
    assert rotating_layers(config, 5) == turns


def test_a_list_that_is_too_short() -> None:
    with pytest.raises(ModelLoadError, match="no_rope_layers"):
        rotating_layers({"no_rope_layer_interval": 4, "no_rope_layers": [1]}, 5)
