"""Packing keeps what the file says: against the `gguf` package's own reading."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from engine.kernels.native.library import NativeEngine, pointer
from engine.models.packed import PackedKind, PackedLinear, PackedSegment
from tests.engine.kernels.native.packing import pack, random_blocks

EXACT = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
ROUNDED = ("Q4_K", "Q5_K", "Q6_K")
ROWS, COLUMNS = 37, 512  # the last tile is not full


def read(blocks: torch.Tensor, source: GGMLQuantizationType) -> torch.Tensor:
    return torch.from_numpy(dequantize(blocks.numpy(), source))


@pytest.mark.parametrize("name", [*EXACT, *ROUNDED])
def test_weights_are_those_of_the_file(engine: NativeEngine, name: str) -> None:
    source = GGMLQuantizationType[name]
    blocks = random_blocks(source, ROWS, COLUMNS)
    packed = PackedLinear(engine, [pack(engine, source, blocks, COLUMNS)])
    got, expected = packed.unpack(torch.arange(ROWS)), read(blocks, source)
    assert got.shape == expected.shape
    if name in EXACT:
        assert torch.equal(got, expected)
    else:
        # Scale and minimum are products that are rounded to float16, half a unit of 11 bits: of
        # all that the codes span, and of the minimum, which is at most as far from 0.
        groups = expected.reshape(ROWS, -1, 32)
        span = groups.amax(-1, keepdim=True) - groups.amin(-1, keepdim=True)
        largest = groups.abs().amax(-1, keepdim=True)
        error = (got - expected).abs().reshape(ROWS, -1, 32)
        assert (error <= (span + largest) * 1.1 * 2.0**-11).all()
        assert error.max() > 0


def test_rows_can_be_permuted(engine: NativeEngine) -> None:
    source = GGMLQuantizationType.Q4_1
    blocks = random_blocks(source, ROWS, COLUMNS)
    order = torch.randperm(ROWS)
    packed = PackedLinear(engine, [pack(engine, source, blocks, COLUMNS, order)])
    assert torch.equal(packed.unpack(torch.arange(ROWS)), read(blocks, source)[order])


@pytest.mark.parametrize(("kind", "steps"), [(PackedKind.Q8, 254), (PackedKind.Q4_MIN, 15)])
def test_floats_are_rounded_to_the_nearest_code(
    engine: NativeEngine, kind: PackedKind, steps: int
) -> None:
    torch.manual_seed(0)
    values = torch.randn(ROWS, COLUMNS)
    values[3, 32:64] = 0.0
    values[4, :32] = 0.25
    library = engine.library
    data = torch.empty(library.lectern_packed_bytes(kind, ROWS, COLUMNS), dtype=torch.uint8)
    library.lectern_pack_floats(kind, pointer(values), ROWS, COLUMNS, pointer(data), 1)
    got = PackedLinear(engine, [PackedSegment(kind, ROWS, COLUMNS, data)]).unpack(
        torch.arange(ROWS)
    )
    groups = values.reshape(ROWS, -1, 32)
    width = groups.amax(-1) - groups.amin(-1)
    if kind is PackedKind.Q8:
        width = 2 * groups.abs().amax(-1)
    half_step = width / steps / 2
    error = (got.reshape(groups.shape) - groups).abs().amax(-1)
    # Scale and minimum are float16: at the far end of the range their error adds up.
    slack = groups.abs().amax(-1) * 2.0**-9
    assert (error <= half_step + slack).all()
    assert torch.equal(got[3, 32:64], torch.zeros(32))
    assert got[4, :32].numpy() == pytest.approx(np.full(32, 0.25), rel=2.0**-11)


def test_other_kinds_have_no_packed_form(engine: NativeEngine) -> None:
    for name in ("F32", "F16", "Q2_K", "Q3_K"):
        assert engine.library.lectern_kind_of_source(int(GGMLQuantizationType[name])) == -1
