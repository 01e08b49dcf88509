"""Float8 rows under the interpreter against torch."""

from __future__ import annotations

import pytest
import torch

from engine.kernels.triton.quantize import gated_quantize, quantize_rows
from tests.engine.kernels.triton.float8_cast import exact_float8_cast
from tests.engine.kernels.triton.layer_checks import (
    FP8,
    check_fused_quantize,
    check_quantize_rows,
)

__all__ = ["exact_float8_cast"]
pytestmark = pytest.mark.usefixtures("exact_float8_cast")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns"), [(1, 64), (5, 80), (3, 33)])
def test_quantize_rows(rows: int, columns: int, dtype: torch.dtype) -> None:
    check_quantize_rows(rows, columns, dtype, DEVICE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns"), [(1, 64), (5, 80)])
def test_fused_forms(rows: int, columns: int, dtype: torch.dtype) -> None:
    check_fused_quantize(rows, columns, dtype, DEVICE)


def test_a_row_of_zeros_and_one_of_large_numbers() -> None:
    x = torch.zeros(3, 16, device=DEVICE)
    x[1] = 3e38
    x[2, 0] = -1e-38
    codes, scales = quantize_rows(x)
    assert (codes[0].float() == 0).all()
    assert (codes[1].float() == 448).all()
    assert scales.isfinite().all()
    assert (scales > 0).all()
    assert codes.float().isfinite().all()


def test_an_input_that_is_not_finite_shows() -> None:
    x = torch.ones(2, 16, device=DEVICE)
    x[0, 3] = float("nan")
    codes, scales = quantize_rows(x)
    assert (codes[0].float() * scales[0]).isnan().any()
    assert (codes[1].float() == 448).all()
    assert codes.dtype == FP8


def test_an_unknown_activation() -> None:
    with pytest.raises(ValueError, match="relu"):
        gated_quantize(torch.zeros(1, 2, device=DEVICE), "relu")
