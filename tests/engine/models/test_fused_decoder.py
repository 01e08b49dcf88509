"""The fused forward pass under Triton's interpreter against `Decoder` with plain attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal
from unittest.mock import Mock

import pytest
import torch

from engine.config import EngineConfig
from engine.models import fp8, fused_decoder
from engine.models.decoder import Decoder
from engine.models.fp8 import Fp8Linear
from engine.models.fused_decoder import can_fuse
from engine.models.registry import load_model
from tests.engine.kernels.triton.float8_cast import exact_float8_cast
from tests.support.decoder_steps import PADDING, Step, StepTrial, dequantized, with_layers
from tests.support.triton_interpreter import accept_scalar_arrays

__all__ = ["exact_float8_cast"]
pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu has it on the device"),
    # Padding rows compute with what is poisoned.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

accept_scalar_arrays()

TOLERANCE = 1e-5
MIXED = Step(((0, 20), (PADDING, 0), (1, 0)), ((2, 15), (2, 16), (2, 17)))
ONE = Step(((0, 16),))
THREE = Step(((1, 0), (PADDING, 0), (0, 20)))


@pytest.fixture
def poisoned_outputs() -> Iterator[None]:
    """New tensors of numbers are full of NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Notes the products of the streaming path."""
    spy = Mock(wraps=fused_decoder.skinny_linear)
    monkeypatch.setattr(fused_decoder, "skinny_linear", spy)
    return spy


def load(folder: Path, quantization: Literal["none", "fp8"] = "none") -> Decoder:
    config = EngineConfig(model=folder, dtype="float32", device="cpu")
    model = load_model(replace(config, quantization=quantization)).model
    assert can_fuse(model)
    return model


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
@pytest.mark.usefixtures("poisoned_outputs")
def test_decodes_with_a_chunk(name: str, streamed: Mock, tiny_model: Callable[[str], Path]) -> None:
    """Without more, with biases before attention, and with norms of queries and keys."""
    torch.manual_seed(6)
    StepTrial(load(tiny_model(name)), MIXED).check(TOLERANCE)
    assert not streamed.called


@pytest.mark.parametrize("step", [MIXED, ONE], ids=["mixed", "one"])
@pytest.mark.usefixtures("poisoned_outputs")
def test_rows_that_are_wanted(step: Step, tiny_model: Callable[[str], Path]) -> None:
    """Are what they are among all; every row's keys and values are written all the same."""
    trial = StepTrial(load(tiny_model("llama")), step)
    everything, slots = trial.fused_forward(), trial.written_slots()
    written = [part[slots].clone() for part in trial.cache.layer(1)]
    for part in trial.cache.layer(1):
        part[slots] = float("nan")
    rows = torch.tensor([len(step.rows) - 1, 0, 0], dtype=torch.int32)
    got = trial.fused_forward(rows)
    for part, wanted in zip(trial.cache.layer(1), written, strict=True):
        assert torch.equal(part[slots], wanted)
    torch.testing.assert_close(got, everything[rows.long()], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "step", "num_layers"), [("qwen3", ONE, 2), ("qwen2", THREE, 1)], ids=["one", "three"]
)
@pytest.mark.usefixtures("poisoned_outputs")
def test_a_few_rows_are_streamed(
    name: str, step: Step, num_layers: int, streamed: Mock, tiny_model: Callable[[str], Path]
) -> None:
    decoder = load(tiny_model(name))
    torch.manual_seed(3)
    StepTrial(with_layers(decoder, decoder.layers[:num_layers]), step).check(TOLERANCE)
    assert streamed.call_count == 3 * num_layers


@pytest.mark.usefixtures("poisoned_outputs")
def test_a_bias_before_the_gate_is_not_streamed(
    streamed: Mock, tiny_model: Callable[[str], Path]
) -> None:
    StepTrial(load(tiny_model("llama_biases")), ONE).check(TOLERANCE)
    assert not streamed.called


@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
@pytest.mark.usefixtures("poisoned_outputs", "exact_float8_cast")
def test_8_bit_weights(
    name: str,
    streamed: Mock,
    tiny_model: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only what comes from attention is quantized on its own. In float32 hardly an input falls to
    the other side of a rounding: the codes are the same."""
    decoder = load(tiny_model(name), "fp8")
    assert all(isinstance(layer.qkv, Fp8Linear) for layer in decoder.layers)
    torch.manual_seed(8)
    trial = StepTrial(decoder, MIXED)
    trial.check(TOLERANCE)
    assert not streamed.called
    spy = Mock(wraps=fp8.quantize_rows)
    monkeypatch.setattr(fp8, "quantize_rows", spy)
    trial.fused_forward()
    assert spy.call_count == decoder.config.num_layers


@pytest.mark.parametrize(
    ("name", "step", "num_layers"), [("qwen3", ONE, 2), ("qwen2", THREE, 1)], ids=["one", "three"]
)
@pytest.mark.usefixtures("poisoned_outputs")
def test_a_few_rows_are_streamed_from_8_bit_weights(
    name: str, step: Step, num_layers: int, streamed: Mock, tiny_model: Callable[[str], Path]
) -> None:
    """Their inputs are not rounded to 8 bits."""
    decoder = load(tiny_model(name), "fp8")
    decoder = with_layers(decoder, decoder.layers[:num_layers])
    assert all(isinstance(layer.down, Fp8Linear) for layer in decoder.layers)
    torch.manual_seed(9)
    StepTrial(decoder, step, reference=dequantized(decoder)).check(TOLERANCE)
    assert streamed.call_count == 3 * num_layers


@pytest.mark.parametrize("step", [THREE, MIXED], ids=["three", "mixed"])
@pytest.mark.usefixtures("poisoned_outputs", "exact_float8_cast")
def test_a_projection_that_cannot_be_rounded_stays_as_it_is(
    step: Step, tiny_model: Callable[[str], Path]
) -> None:
    """One layer's projections may be kept in different ways."""
    plain, rounded = load(tiny_model("llama")), load(tiny_model("llama"), "fp8")
    first, second = rounded.layers
    layers = (
        replace(first, qkv=plain.layers[0].qkv, output=plain.layers[0].output),
        replace(second, mlp=plain.layers[1].mlp),
    )
    mixed = with_layers(rounded, layers)
    reference = dequantized(mixed) if step is THREE else mixed
    StepTrial(mixed, step, reference=reference).check(TOLERANCE)
