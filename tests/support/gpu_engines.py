"""Engines with the GPU's runner: on a CUDA device where there is one, else on the CPU with the
kernels in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from engine.assembly import assemble_model
from engine.config import DeviceType, EngineConfig
from engine.core import EngineCore
from engine.execution.runner import ModelRunner
from engine.execution.triton_runner import TritonModelRunner
from engine.types import GenerationRequest
from tests.support.engines import run_to_end
from tests.support.triton_interpreter import accept_scalar_arrays

DEVICE: DeviceType = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    accept_scalar_arrays()
SETTINGS: dict[str, Any] = {
    "execution": "triton",
    "device": DEVICE,
    "dtype": "float32",
    "block_size": 16,
    "max_num_seqs": 64,
    "max_num_batched_tokens": 128,
    "min_chunk_tokens": 16,
    "kv_cache_tokens": 8192,
    # What is scheduled must not depend on how fast it is computed.
    "step_time_target_s": 60.0,
    "prefill_step_time_target_s": 60.0,
}


def make_engine(folder: Path, **settings: Any) -> tuple[EngineCore, TritonModelRunner]:
    """An engine around the model in `folder`, and its runner."""
    runners: list[ModelRunner] = []

    def keep(runner: ModelRunner) -> ModelRunner:
        runners.append(runner)
        return runner

    config = EngineConfig(model=folder, **(SETTINGS | settings))
    core = assemble_model(config, None, wrap_runner=keep).core
    assert isinstance(runners[0], TritonModelRunner)
    return core, runners[0]


def make_plain_engine(folder: Path, device: DeviceType = "cpu", **settings: Any) -> EngineCore:
    """The same with torch's own operations."""
    chosen = SETTINGS | {"execution": "torch", "device": device} | settings
    return assemble_model(EngineConfig(model=folder, **chosen), None).core


def answers(core: EngineCore, requests: Iterable[GenerationRequest]) -> dict[str, list[int]]:
    """The tokens that each of `requests` gets, all of them sent at once."""
    for request in requests:
        core.add(request)
    return {name: got.token_ids for name, got in run_to_end(core).items()}
