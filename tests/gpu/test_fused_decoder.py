"""The fused forward pass on a card against `Decoder` with plain attention, at real widths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
import torch

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

from engine.config import EngineConfig  # noqa: E402
from engine.models.fp8 import MIN_CAPABILITY, Fp8Linear  # noqa: E402
from engine.models.fused_decoder import can_fuse  # noqa: E402
from engine.models.registry import load_model  # noqa: E402
from tests.support.decoder_steps import PADDING, Step, StepTrial, dequantized  # noqa: E402

BLOCK_SIZE = 64
CONFIG = {
    "vocab_size": 999,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
    "eos_token_id": 0,
}
ARCHITECTURES = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
STEPS = {
    "one": Step(((0, 700),)),
    "three": Step(((1, 0), (PADDING, 0), (0, 63))),
    "decodes": Step(tuple((slot, 37 * slot) for slot in range(20))),
    "mixed": Step(((0, 400), (PADDING, 0), (1, 0)), tuple((2, 50 + i) for i in range(150))),
}
TOLERANCES = {"float32": 1e-4, "float16": 0.01, "bfloat16": 0.05}
"""Relative to the largest number: two layers' roundings."""
FP8_TOLERANCE = 0.15
"""A bfloat16's last bit may move an input to the next code, an eighth away."""
STREAMED = {"one", "three"}
"""Steps of so few rows that their inputs are not rounded to 8 bits either."""
has_fp8 = torch.cuda.is_available() and torch.cuda.get_device_capability() >= MIN_CAPABILITY

needs_fp8 = pytest.mark.skipif(not has_fp8, reason="needs 8-bit floats in hardware")


@pytest.mark.parametrize("step", list(STEPS))
@pytest.mark.parametrize("name", list(ARCHITECTURES))
@pytest.mark.parametrize(
    ("dtype", "quantization"),
    [
        ("float32", "none"),
        ("float16", "none"),
        ("bfloat16", "none"),
        pytest.param("bfloat16", "fp8", marks=needs_fp8),
        pytest.param("float16", "fp8", marks=needs_fp8),
    ],
)
def test_the_fused_forward_pass(
    dtype: Literal["float32", "float16", "bfloat16"],
    quantization: Literal["none", "fp8"],
    name: str,
    step: str,
    tmp_path: Path,
) -> None:
    content = {**CONFIG, "model_type": name, "architectures": [ARCHITECTURES[name]]}
    (tmp_path / "config.json").write_text(json.dumps(content), "utf-8")
    config = EngineConfig(
        model=tmp_path,
        load_format="dummy",
        dtype=dtype,
        device="cuda",
        quantization=quantization,
    )
    decoder = load_model(config).model
    assert can_fuse(decoder)
    assert isinstance(decoder.layers[0].down, Fp8Linear) == (quantization == "fp8")
    torch.manual_seed(len(step))
    rounds = quantization == "fp8" and step not in STREAMED
    reference = decoder if rounds else dequantized(decoder)
    trial = StepTrial(decoder, STEPS[step], block_size=BLOCK_SIZE, reference=reference)
    trial.check(FP8_TOLERANCE if rounds else TOLERANCES[dtype])
