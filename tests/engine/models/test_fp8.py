"""Float8 weights on the CPU: the numbers that a GPU multiplies, and where they are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig
from engine.errors import ModelLoadError
from engine.models.decoder import Decoder
from engine.models.dummy import RandomWeights
from engine.models.fp8 import Fp8Linear, Fp8Weights, check_capability, quantize_rows, saturate
from engine.models.linear import Linear
from engine.models.registry import load_model
from tests.engine.models.running import logits_of

CPU = torch.device("cpu")


def test_the_product_is_that_of_the_rounded_factors() -> None:
    weight, x, bias = torch.randn(48, 32), torch.randn(5, 32) * 30, torch.randn(48)
    linear = Fp8Linear(weight, bias)
    codes, scales = quantize_rows(x)
    assert codes.dtype == torch.float8_e4m3fn
    assert scales.shape == (5, 1)
    rounded_x = codes.double() * scales.double()
    rounded_weight = linear.codes.double() * linear.scales.double()
    expected = rounded_x @ rounded_weight.T + bias.double()
    torch.testing.assert_close(linear(x).double(), expected, rtol=1e-5, atol=1e-4)


def test_rounding_costs_some_percent() -> None:
    """A code has 3 bits behind its first: a product of two is off by about 4 % of its size."""
    weight, x = torch.randn(64, 512), torch.randn(16, 512)
    exact = x @ weight.T
    error = (Fp8Linear(weight)(x) - exact).norm() / exact.norm()
    assert 0.01 < error < 0.05


def test_a_row_has_the_same_result_in_any_company() -> None:
    linear, x = Fp8Linear(torch.randn(32, 64)), torch.randn(3, 64)
    crowd = torch.cat([x * 1000, x])
    torch.testing.assert_close(linear(crowd)[3:], linear(x), rtol=1e-5, atol=1e-5)


def test_the_dtype_of_the_run_is_kept() -> None:
    linear = Fp8Linear(torch.randn(32, 64, dtype=torch.bfloat16), torch.zeros(32).bfloat16())
    assert linear(torch.randn(2, 64, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_what_is_too_large_for_a_cache_becomes_the_largest() -> None:
    x = torch.tensor([0.0, 447.0, 1e6, -1e6, 0.3])
    assert saturate(x).tolist() == [0.0, 448.0, 448.0, -448.0, 0.3125]


def test_which_weights_are_rounded() -> None:
    weights = Fp8Weights(RandomWeights(dtype=torch.float32, device=CPU))
    merged = weights.linear([("a", 32), ("b", 16)], 64, bias=True)
    assert isinstance(merged, Fp8Linear)
    assert merged.codes.shape == (48, 64)
    assert merged.bias is not None
    for projection in (
        weights.linear([("lm_head", 32)], 64),
        weights.linear([("a", 40)], 64),
        weights.linear([("a", 32)], 56),
    ):
        assert isinstance(projection, Linear)
    assert weights.embedding("e", (32, 64)).dtype == torch.float32


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gemma3"])
def test_models_stay_close_to_floats(name: str, tiny_model: Callable[[str], Path]) -> None:
    ids = list(range(5, 50))
    config = EngineConfig(model=tiny_model(name), dtype="float32", device="cpu")
    exact = load_model(config).model
    rounded = load_model(replace(config, quantization="fp8")).model
    assert isinstance(rounded, Decoder)
    assert any(isinstance(layer.qkv, Fp8Linear) for layer in rounded.layers)
    expected = logits_of(exact, ids)
    difference = (logits_of(rounded, ids) - expected).abs().mean()
    assert 0 < difference < 0.2 * expected.abs().mean()


@pytest.mark.parametrize(("found", "fits"), [((8, 0), False), ((8, 9), True), ((9, 0), True)])
def test_gpus_without_8_bit_floats(
    monkeypatch: pytest.MonkeyPatch, found: tuple[int, int], fits: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: found)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "A card")
    if fits:
        check_capability(torch.device("cuda"), "quantization fp8")
        return
    with pytest.raises(ModelLoadError, match=r"quantization fp8 .* 8\.9 .* A card has 8\.0"):
        check_capability(torch.device("cuda"), "quantization fp8")


def test_packed_weights_are_not_rounded_again(
    monkeypatch: pytest.MonkeyPatch, tiny_model: Callable[[str], Path]
) -> None:
    from engine.models import registry

    monkeypatch.setattr(registry, "choose_packing", lambda *_args, **_kwargs: object())
    with pytest.raises(ModelLoadError, match="weights q8"):
        load_model(
            EngineConfig(model=tiny_model("llama"), weights="q8", quantization="fp8", device="cpu")
        )
