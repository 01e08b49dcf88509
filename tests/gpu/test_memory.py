"""Memory of a GPU: what does not fit is refused at start with the numbers, and what was allowed is
not exceeded."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.errors import ModelLoadError
from engine.types import GenerationRequest, RequestId, SamplingParams
from tests.support.engines import run_to_end

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

NUM_LAYERS, NUM_KV_HEADS, HEAD_DIM = 16, 32, 128
BYTES_PER_TOKEN = 2 * NUM_LAYERS * NUM_KV_HEADS * HEAD_DIM * 2
"""In bfloat16: 256 KiB."""
NUMBERS = (
    r"of the GPU's \d+\.\d\d GiB, gpu_memory_utilization [\d.]+ allows (?P<budget>[\d.]+) GiB, "
    r"(?P<used>[\d.]+) GiB are in use .* which leaves (?P<left>[\d.]+) GiB, "
    r"enough for (?P<tokens>\d+) tokens"
)
GIB = 1 << 30


def total_bytes() -> int:
    return int(torch.cuda.mem_get_info()[1])


def used_bytes() -> int:
    """By all programs on the card."""
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A configuration with small weights and a large cache, for more tokens than a card holds."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": NUM_KV_HEADS,
        "num_key_value_heads": NUM_KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": 1 << 30,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 256,
        "eos_token_id": 258,
    }
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    return tmp_path


def start(folder: Path, **settings: Any) -> Any:
    chosen: dict[str, Any] = {
        "device": "cuda",
        "dtype": "bfloat16",
        "load_format": "dummy",
        "max_model_len": 4096,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 1024,
    }
    return assemble_model(EngineConfig(model=folder, **(chosen | settings)), None)


def refusal(folder: Path, **settings: Any) -> str:
    with pytest.raises(ModelLoadError) as caught:
        start(folder, **settings)
    return str(caught.value)


def test_a_share_that_is_used_up_is_refused_with_the_numbers(folder: Path) -> None:
    """What other programs hold counts, too."""
    share = 0.02
    others = torch.empty(int(share * total_bytes()), dtype=torch.uint8, device="cuda")
    message = refusal(folder, gpu_memory_utilization=share)
    assert message.startswith("One sequence of max_model_len 4096 tokens takes 1.00 GiB")
    found = re.search(NUMBERS, message)
    assert found is not None, message
    assert float(found["budget"]) == pytest.approx(share * total_bytes() / GIB, abs=0.01)
    assert float(found["used"]) * GIB > others.numel()
    assert (found["left"], found["tokens"]) == ("0.00", "0")


def test_a_cache_that_does_not_fit_is_refused_with_the_numbers(folder: Path) -> None:
    wanted = total_bytes() // BYTES_PER_TOKEN + 1000
    message = refusal(folder, kv_cache_tokens=wanted)
    assert message.startswith(f"kv_cache_tokens is {wanted}, which takes ")
    found = re.search(NUMBERS, message)
    assert found is not None, message
    assert 0 < int(found["tokens"]) < wanted
    # A part of what is said to fit does; the rest is left to whoever else uses the card.
    fitting = int(found["tokens"]) // 20
    core = start(folder, kv_cache_tokens=fitting).core
    assert core.stats().total_blocks == -(-fitting // 64)


def test_one_sequence_that_does_not_fit_is_refused_with_the_numbers(folder: Path) -> None:
    wanted = total_bytes() // BYTES_PER_TOKEN + 1000
    message = refusal(folder, max_model_len=wanted)
    assert message.startswith(f"One sequence of max_model_len {wanted} tokens takes ")
    found = re.search(NUMBERS, message)
    assert found is not None, message
    assert 0 < int(found["tokens"]) < wanted
    assert int(found["tokens"]) == pytest.approx(
        float(found["left"]) * GIB / BYTES_PER_TOKEN, abs=0.01 * GIB / BYTES_PER_TOKEN + 64
    )


@pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="needs the card to itself")
def test_the_share_is_used_and_not_exceeded(folder: Path) -> None:
    """Also when every graph is captured and the largest step has run."""
    share = 0.4
    assembly = start(folder, gpu_memory_utilization=share)
    core = assembly.core
    limit = share * total_bytes()
    assert used_bytes() <= limit + 0.01 * total_bytes()
    assert used_bytes() >= limit - 0.02 * total_bytes()
    while core.idle():
        pass
    for number in range(8):
        prompt = tuple((i * 7 + number) % 250 for i in range(3000))
        params = SamplingParams(max_tokens=20, ignore_eos=True, seed=number, top_p=0.9)
        core.add(GenerationRequest(RequestId(f"r{number}"), prompt, params))
    got = run_to_end(core)
    assert all(len(one.token_ids) == 20 for one in got.values())
    assert used_bytes() <= limit + 0.01 * total_bytes()
