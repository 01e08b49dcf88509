"""Both runners: a request whose logits are not finite fails, and only that one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.execution.logit_check import NOT_FINITE
from engine.execution.model_runner import TorchModelRunner
from engine.execution.native_runner import NativeModelRunner
from engine.types import Finish, FinishType, GenerationRequest, RequestId, SamplingParams
from tests.support.engines import run_to_end
from tests.support.native import require_library
from tests.support.tiny_models import build_tiny_model

BROKEN = 300
"""The token whose embedding is no number."""
PROMPTS = {"good": (5, 6, 7), "broken": (5, BROKEN, 7), "other": (8, 9)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = build_tiny_model(tmp_path_factory.mktemp("models"), "llama")
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.embed_tokens.weight"][BROKEN] = math.nan
    save_file(tensors, path)
    return folder


def make_engine(folder: Path, weights: str) -> EngineCore:
    options: dict[str, Any] = {"weights": weights, "speculation": "off"}
    if weights == "float":
        options["dtype"] = "float32"
    else:
        require_library()
    config = EngineConfig(
        model=folder, device="cpu", block_size=8, kv_cache_tokens=512, max_num_seqs=8, **options
    )
    return assemble_model(config, None).core


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    ("weights", "runner"), [("float", TorchModelRunner), ("q8", NativeModelRunner)]
)
def test_a_request_without_finite_logits_fails_alone(
    weights: str, runner: type, temperature: float, folder: Path
) -> None:
    def run(*names: str) -> dict[str, Any]:
        core = make_engine(folder, weights)
        assert isinstance(core._runner, runner)
        for name in names:
            params = SamplingParams(
                temperature=temperature,
                seed=1,
                max_tokens=6,
                ignore_eos=True,
                logit_bias=((BROKEN, -100.0),),
            )
            core.add(GenerationRequest(RequestId(name), PROMPTS[name], params))
        found = run_to_end(core)
        core.check()
        return found

    together, alone = run(*PROMPTS), run("good", "other")
    broken = together["broken"].finish
    assert isinstance(broken, Finish)
    assert (broken.detail.type, broken.message) == (FinishType.ERROR, NOT_FINITE)
    assert together["broken"].token_ids == []
    for name in ("good", "other"):
        assert together[name].finish_type == "max_tokens"
        assert together[name].token_ids == alone[name].token_ids
