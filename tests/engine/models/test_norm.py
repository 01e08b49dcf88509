"""Both ways of norming against the definition in float64."""

from __future__ import annotations

import pytest
import torch

from engine.models.norm import rms_norm


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03), (torch.float16, 4e-3)]
)
@pytest.mark.parametrize("weight_shape", [(16,), (3, 16)])
def test_equals_the_definition(
    dtype: torch.dtype, tolerance: float, weight_shape: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(5, 3, 16, generator=generator).to(dtype)
    weight = torch.randn(weight_shape, generator=generator).to(dtype)
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    result = rms_norm(x, weight, 1e-5)
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), expected, atol=tolerance, rtol=tolerance)


def test_leaves_its_input_as_it_was() -> None:
    x = torch.ones(2, 3, 4, dtype=torch.bfloat16)
    rms_norm(x, torch.full((3, 4), 2.0, dtype=torch.bfloat16), 1e-5)
    assert torch.equal(x, torch.ones_like(x))


def test_a_float32_weight_is_multiplied_before_rounding() -> None:
    """As Gemma is trained; a weight of the narrow dtype is multiplied after it."""
    torch.manual_seed(1)
    x = torch.randn(50, 64).bfloat16()
    weight = torch.randn(64).bfloat16()
    quotient = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
    late = rms_norm(x, weight.float(), 1e-6)
    assert late.dtype == torch.bfloat16
    assert torch.equal(late, (quotient * weight.float()).bfloat16())
    assert torch.equal(rms_norm(x, weight, 1e-6), quotient.bfloat16() * weight)
    assert not torch.equal(late, rms_norm(x, weight, 1e-6))
