"""Packed weights in every form of decoder: close to the same file read into floats, whichever of
the form's parts runs packed and whichever not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.models.registry import load_model
from tests.engine.models.running import logits_of
from tests.support.gguf_files import GGUF_MODELS, write_gguf
from tests.support.native import require_library

IDS = list(range(5, 50))


@pytest.mark.parametrize("name", GGUF_MODELS)
def test_close_to_floats(name: str, tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    """Inputs of products are rounded to 8 bits, which large random weights make much of and which
    may send a token to another expert; a row in another's place gives differences of 1."""
    require_library()
    path = write_gguf(tmp_path / "m.gguf", tiny_model(name), "Q8_0")
    packed = load_model(EngineConfig(model=path, device="cpu"))
    assert packed.packing is not None
    expected = logits_of(
        load_model(EngineConfig(model=path, dtype="float32", device="cpu")).model, IDS
    )
    difference = (logits_of(packed.model, IDS) - expected).abs().mean()
    assert 0 < difference < 0.15 * expected.abs().mean()
