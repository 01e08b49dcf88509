"""Norm, rotation and cache write under the interpreter against the torch path."""

from __future__ import annotations

import pytest
import torch

from tests.engine.kernels.triton.float8_cast import exact_float8_cast
from tests.engine.kernels.triton.layer_checks import FP8, check_rotary

__all__ = ["exact_float8_cast"]
pytestmark = pytest.mark.usefixtures("exact_float8_cast")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
F32, F16 = torch.float32, torch.float16


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("norm", [None, "own", F32])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "rotary_dim"),
    [(2, 1, 64, 64), (5, 3, 80, 80), (9, 5, 96, 48), (4, 4, 128, 32), (14, 2, 20, 16)],
)
def test_rotate_and_store(
    heads: int,
    kv_heads: int,
    head_dim: int,
    rotary_dim: int,
    norm: str | torch.dtype | None,
    dtype: torch.dtype,
) -> None:
    norm_dtype = dtype if norm == "own" else norm
    assert norm_dtype is None or isinstance(norm_dtype, torch.dtype)
    check_rotary(4, heads, kv_heads, head_dim, rotary_dim, dtype, DEVICE, norm=norm_dtype)


def test_head_dim_256_and_one_token() -> None:
    check_rotary(1, 3, 1, 256, 256, F32, DEVICE, norm=F32, index_dtype=torch.int64)


@pytest.mark.parametrize("cache_dtype", [F32, F16, FP8])
@pytest.mark.parametrize("dtype", [F32, F16])
def test_a_cache_of_another_dtype(dtype: torch.dtype, cache_dtype: torch.dtype) -> None:
    check_rotary(5, 6, 2, 64, 32, dtype, DEVICE, norm=dtype, cache_dtype=cache_dtype)
