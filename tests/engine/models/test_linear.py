"""The product that is chosen gives what the plain one gives."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from engine.models.linear import Linear, choose_product


@pytest.mark.parametrize("rows", [0, 1, 3, 70])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_the_plain_product(rows: int, has_bias: bool, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, 48, generator=generator).to(dtype)
    weight = torch.randn(40, 48, generator=generator).to(dtype)
    bias = torch.randn(40, generator=generator).to(dtype) if has_bias else None
    with torch.inference_mode():
        result = Linear(weight, bias)(x)
    assert result.dtype == dtype
    expected = functional.linear(
        x.double(), weight.double(), None if bias is None else bias.double()
    )
    tolerance = 1e-4 if dtype == torch.float32 else 0.3
    torch.testing.assert_close(result.double(), expected, atol=tolerance, rtol=0)


def test_works_on_a_part_of_a_mapped_file() -> None:
    """A weight may begin anywhere in a storage."""
    storage = torch.arange(200, dtype=torch.float32)
    weight = storage[3:163].view(16, 10)
    x = torch.ones(2, 10)
    assert torch.equal(Linear(weight)(x)[0], weight.sum(1))


def test_float32_on_a_cpu_does_not_take_the_slower_product() -> None:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        pytest.skip("torch without oneDNN")
    assert choose_product(torch.zeros(2, 2)) is not functional.linear
    assert choose_product(torch.zeros(2, 2, dtype=torch.bfloat16)) is functional.linear
