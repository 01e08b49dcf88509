"""Other architectures by the code of transformers: its own logits, and clear refusals."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import EngineConfig
from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models import registry
from engine.models.generic import GenericConfig, GenericModel, load_generic
from engine.models.registry import load_model
from tests.engine.models.running import greedy, logits_of
from tests.support.oracle import load_oracle
from tests.support.tiny_models import GENERIC_MODELS

CPU = torch.device("cpu")
PROMPT = [(7 * i * i + 3 * i + 5) % 320 for i in range(45)]


def load(folder: Path) -> tuple[GenericConfig, GenericModel]:
    return load_generic(folder, dtype=torch.float32, device=CPU)


@pytest.mark.parametrize("name", sorted(GENERIC_MODELS))
def test_equals_transformers(name: str, tiny_model: Callable[[str], Path]) -> None:
    folder = tiny_model(name)
    loaded = load_model(EngineConfig(model=folder, dtype="float32", device="cpu"))
    assert isinstance(loaded.model, GenericModel)
    assert not loaded.model.is_plain
    theirs = load_oracle(folder)
    with torch.inference_mode():
        expected = theirs(torch.tensor([PROMPT])).logits[0]
    torch.testing.assert_close(logits_of(loaded.model, PROMPT), expected, atol=2e-4, rtol=2e-4)
    assert greedy(loaded.model, PROMPT, 8, chunk=7) == greedy(loaded.model, PROMPT, 8)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_pass_the_trial(dtype: torch.dtype, tiny_model: Callable[[str], Path]) -> None:
    folder = tiny_model("olmo2")
    _, model = load_generic(folder, dtype=dtype, device=CPU)
    exact = logits_of(load(folder)[1], PROMPT)
    got = logits_of(model, PROMPT)
    assert (model.dtype, got.dtype) == (dtype, torch.float32)
    assert (got - exact).abs().mean() < 0.05 * exact.abs().mean()


def test_a_head_that_fails_leaves_nothing_behind(tiny_model: Callable[[str], Path]) -> None:
    """Hidden states of a step that is over would take memory, on a GPU, too."""
    _, model = load(tiny_model("olmo2"))
    hidden = torch.ones(2, model._model.config.hidden_size)
    before = model.compute_logits(hidden)
    with pytest.raises(RuntimeError):
        model.compute_logits(torch.ones(2, 3))
    assert model._given is None
    assert torch.equal(model.compute_logits(hidden), before)


def test_weights_are_not_packed(
    tiny_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "choose_packing", lambda *_args, **_kwargs: object())
    with pytest.raises(ModelLoadError, match="weights q8"):
        load_model(EngineConfig(model=tiny_model("olmo2"), weights="q8", device="cpu"))


def test_sizes_and_end_ids(tiny_model: Callable[[str], Path]) -> None:
    config, model = load(tiny_model("starcoder2"))
    assert config == GenericConfig("Starcoder2ForCausalLM", 320, 2, 2, 16, 512, (0, 2))
    assert (model.dtype, model.device) == (torch.float32, CPU)
    assert (config.max_model_len(None), config.max_model_len(100)) == (512, 100)
    with pytest.raises(ModelLoadError, match="has 512 positions"):
        config.max_model_len(513)


def rewritten(folder: Path, target: Path, **changes: Any) -> Path:
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (target / "config.json").write_text(json.dumps({**config, **changes}), "utf-8")
    return target


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architectures": ["NoSuchModel"], "model_type": "no_such"}, "no_such"),
        ({"is_encoder_decoder": True}, "it has an encoder"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantized"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
            "'dynamic' changes the angles",
        ),
    ],
)
def test_refusals_by_configuration(
    changes: dict[str, Any], reason: str, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = rewritten(tiny_model("olmo2"), tmp_path, **changes)
    with pytest.raises(UnsupportedModelError) as caught:
        load(folder)
    assert reason in str(caught.value)
    for name in (changes.get("architectures", ["Olmo2ForCausalLM"])[0], "LlamaForCausalLM"):
        assert name in str(caught.value)


def test_missing_weights_are_named_and_never_made_up(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = rewritten(tiny_model("olmo2"), tmp_path, num_hidden_layers=3)
    with pytest.raises(ModelLoadError, match=r"missing keys.*layers\.2"):
        load(folder)


def test_without_transformers_the_error_says_how_to_get_it(
    tiny_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "transformers":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnsupportedModelError, match=r"Olmo2ForCausalLM.*lectern\[generic\]"):
        load(tiny_model("olmo2"))
