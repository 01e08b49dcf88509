"""Thousands of random events against the GPU's runner: no block, slot or request is left behind,
and whatever happened around a request, it got the answer that it gets alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from tests.support.engine_fuzz import EngineFuzz
from tests.support.tiny_models import build_tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

NUM_EVENTS = 10_000
HAPPENED = (
    "cancelled",
    "captures",
    "context_window",
    "deadline",
    "eos",
    "forks",
    "max_tokens",
    "preemptions",
    "steps_with_others_in_flight",
    "stop_string",
    "stop_token",
)


@pytest.mark.timeout(240)
def test_ten_thousand_events(tmp_path: Path) -> None:
    fuzz = EngineFuzz(build_tiny_model(tmp_path, "qwen3"), seed=1)
    fuzz.play(NUM_EVENTS)
    report = fuzz.report()
    assert all(report[name] >= 5 for name in HAPPENED), report
    assert report["cached_tokens"] > 1000
    fuzz.compare(200)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["gemma2", "mixtral"])
def test_models_that_are_launched_kernel_by_kernel_or_not_fused(name: str, tmp_path: Path) -> None:
    fuzz = EngineFuzz(build_tiny_model(tmp_path, name), seed=2)
    fuzz.play(1000)
    fuzz.compare(50)
