"""The engine on a CUDA device by torch's own operations, as where Triton is missing or cannot
serve: the same answers as `transformers` on the CPU, and seeds that mean the same on both."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.types import GenerationRequest, RequestId, SamplingParams
from tests.support.engines import Collected, run_to_end
from tests.support.oracle import load_oracle, next_tokens
from tests.support.tiny_models import GENERIC_MODELS, TINY_MODELS, build_tiny_model

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

NUM_TOKENS = 64
PROMPTS = {f"p{n}": tuple((i * i + 13 * n) % 310 + 4 for i in range(n)) for n in (3, 17, 70)}


def answers(
    folder: Path, device: Literal["cpu", "cuda"], temperature: float = 0.0
) -> dict[str, Collected]:
    """What the engine answers to all prompts in one batch, in odd chunks and a tight pool."""
    core = assemble_model(
        EngineConfig(
            model=folder,
            dtype="float32",
            device=device,
            execution="torch",
            block_size=8,
            kv_cache_tokens=200,
            max_num_seqs=8,
            max_num_batched_tokens=23,
        ),
        None,
    ).core
    params = SamplingParams(
        temperature=temperature, seed=7, max_tokens=NUM_TOKENS, ignore_eos=True, top_p=0.9
    )
    for name, prompt in PROMPTS.items():
        core.add(GenerationRequest(RequestId(name), prompt, params))
    return run_to_end(core)


@pytest.mark.parametrize("name", [*sorted(TINY_MODELS), *sorted(GENERIC_MODELS)])
def test_greedy_parity(name: str, tmp_path: Path) -> None:
    folder = build_tiny_model(tmp_path, name)
    oracle = load_oracle(folder)
    got = answers(folder, "cuda")
    for prompt_name, prompt in PROMPTS.items():
        answer = got[prompt_name].token_ids
        assert len(answer) == NUM_TOKENS
        expected = next_tokens(oracle, [*prompt, *answer[:-1]], len(prompt) - 1)
        assert answer == expected, prompt_name


def test_a_seed_means_the_same_on_both_devices(tmp_path: Path) -> None:
    folder = build_tiny_model(tmp_path, "llama")
    on_cuda, on_cpu = answers(folder, "cuda", 1.0), answers(folder, "cpu", 1.0)
    assert {name: got.token_ids for name, got in on_cuda.items()} == {
        name: got.token_ids for name, got in on_cpu.items()
    }
