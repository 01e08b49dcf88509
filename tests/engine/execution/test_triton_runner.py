"""The GPU's runner on a CPU, its kernels in Triton's interpreter: the same answers as the plain
runner, with steps in flight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.types import GenerationRequest, RequestId, SamplingParams
from tests.support.engines import Collected, run_to_end
from tests.support.tiny_models import build_tiny_model
from tests.support.triton_interpreter import accept_scalar_arrays

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu has it on the device"),
    pytest.mark.timeout(300),
    # Rows of padding hold whatever the memory held; numpy, which the interpreter computes with,
    # warns of what comes of that.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

accept_scalar_arrays()

NUM_TOKENS = 3
PARAMS: dict[int, dict[str, Any]] = {
    3: {"temperature": 0.0, "repetition_penalty": 1.3},
    20: {"temperature": 0.9, "seed": 11, "top_p": 0.9, "presence_penalty": 0.5},
    34: {"temperature": 0.0},
}
"""How the prompt of so many tokens is answered."""


def make_engine(folder: Path, **settings: Any) -> EngineCore:
    chosen: dict[str, Any] = {
        "execution": "triton",
        "device": "cpu",
        "dtype": "float32",
        "block_size": 16,
        "max_model_len": 64,
        "max_num_seqs": 3,
        "max_num_batched_tokens": 40,
        "kv_cache_tokens": 256,
    }
    return assemble_model(EngineConfig(model=folder, **(chosen | settings)), None).core


def answers(core: EngineCore) -> dict[str, list[int]]:
    for length, params in PARAMS.items():
        prompt = tuple((i * i + 13 * length) % 310 + 4 for i in range(length))
        sampling = SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True, **params)
        core.add(GenerationRequest(RequestId(str(length)), prompt, sampling))
    got: dict[str, Collected] = run_to_end(core)
    core.check()
    return {name: one.token_ids for name, one in got.items()}


@pytest.mark.parametrize("name", ["qwen3", "gemma2"])
def test_the_same_answers_as_the_plain_runner(name: str, tmp_path: Path) -> None:
    """Prompts in one chunk, in several, and as single rows, mixed with decodes; a fused decoder
    and one that is not; greedy and seeded, with penalties."""
    folder = build_tiny_model(tmp_path, name)
    assert answers(make_engine(folder)) == answers(make_engine(folder, execution="torch"))


def test_the_same_answers_with_prefix_hits_in_a_tight_pool(tmp_path: Path) -> None:
    folder = build_tiny_model(tmp_path, "llama")
    expected = answers(make_engine(folder, execution="torch"))
    core = make_engine(folder, kv_cache_tokens=64)
    assert answers(core) == expected
    assert answers(core) == expected
    assert core.stats().cached_tokens > 0
