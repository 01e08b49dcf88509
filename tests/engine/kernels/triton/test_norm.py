"""Norm kernels under the interpreter against the torch path."""

from __future__ import annotations

import pytest
import torch

from engine.kernels.triton import norm
from engine.kernels.triton.norm import rms_norm, tile_of
from tests.engine.kernels.triton.layer_checks import (
    check_add_rms_norm,
    check_embed_rms_norm,
    check_rms_norm,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.float16]


@pytest.fixture(params=[1, 4], ids=["a row a program", "four rows"])
def rows_each(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == 4:
        monkeypatch.setattr(norm, "_MANY_ROWS", 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "hidden"), [(1, 64), (5, 72), (9, 33)])
@pytest.mark.usefixtures("rows_each")
def test_rms_norm(rows: int, hidden: int, dtype: torch.dtype) -> None:
    check_rms_norm(rows, hidden, dtype, dtype, DEVICE)
    check_rms_norm(rows, hidden, dtype, torch.float32, DEVICE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "hidden"), [(1, 64), (5, 72), (9, 33)])
@pytest.mark.usefixtures("rows_each")
def test_add_rms_norm(rows: int, hidden: int, dtype: torch.dtype) -> None:
    check_add_rms_norm(rows, hidden, dtype, dtype, DEVICE)
    check_add_rms_norm(rows, hidden, dtype, torch.float32, DEVICE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ids_dtype", [torch.int32, torch.int64])
@pytest.mark.usefixtures("rows_each")
def test_embed_rms_norm(dtype: torch.dtype, ids_dtype: torch.dtype) -> None:
    check_embed_rms_norm(6, 40, dtype, 1.0, ids_dtype, DEVICE)
    check_embed_rms_norm(1, 64, dtype, 8.5, ids_dtype, DEVICE)


def test_no_rows() -> None:
    x = torch.empty(0, 64, device=DEVICE)
    assert rms_norm(x, torch.ones(64, device=DEVICE), 1e-6).shape == (0, 64)


def test_a_row_that_fits_no_program() -> None:
    with pytest.raises(ValueError, match="40000"):
        rms_norm(torch.empty(1, 40000), torch.empty(40000), 1e-6)


@pytest.mark.parametrize(
    ("rows", "hidden", "programs"), [(1, 1024, 1), (4097, 1024, 1025), (4097, 4096, 4097)]
)
def test_many_short_rows_share_programs(rows: int, hidden: int, programs: int) -> None:
    assert tile_of(rows, hidden)[0] == programs
