"""Products of packed weights: against the same arithmetic in float64."""

from __future__ import annotations

import ctypes

import pytest
import torch
from torch import Tensor

from engine.kernels.native.library import NativeEngine, pointer
from engine.models.packed import PackedKind, PackedLinear
from tests.engine.kernels.native.packing import random_linear


def quantized(library: ctypes.CDLL, x: Tensor) -> Tensor:
    """What the kernels make of an input: [T, columns] float64."""
    rows, columns = x.shape
    codes = torch.empty(rows, columns, dtype=torch.int8)
    scales, sums = torch.empty(rows, columns // 32), torch.empty(rows, columns // 16)
    library.lectern_quantize(
        pointer(x), rows, columns, pointer(codes), pointer(scales), pointer(sums)
    )
    groups = codes.double().reshape(rows, -1, 32)
    for index, width in ((0, 32), (1, 16)):
        expected = groups[..., :width].sum(-1) * scales.double()
        got = sums.reshape(rows, -1, 2)[..., index].double()
        assert torch.allclose(got, expected, rtol=1e-6, atol=1e-9)
    return codes.double() * scales.double().repeat_interleave(32, 1)


def test_inputs_are_rounded_to_127_steps_of_their_own_group(library: ctypes.CDLL) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 96) * torch.tensor([1e-3, 1.0, 1e3, 1e6, 0.0])[:, None]
    largest = x.abs().reshape(5, 3, 32).amax(-1).repeat_interleave(32, 1)
    error = (quantized(library, x) - x.double()).abs()
    assert (error <= largest.double() / 254 * 1.001).all()


def test_tiny_inputs_are_nothing_and_no_nan(engine: NativeEngine) -> None:
    linear = random_linear(engine, PackedKind.Q8, 16, 64)
    x = torch.full((4, 64), 1.0)
    x[:, 32:] = torch.tensor([1e-37, 1e-40, 1e-31, 0.0])[:, None]
    x[0, 40] = 0.0
    alone = torch.full((1, 64), 1.0)
    alone[:, 32:] = 0.0
    assert torch.equal(linear(x), linear(alone).expand(4, -1))


@pytest.mark.parametrize("kind", list(PackedKind))
@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 7, 70])
def test_product(engine: NativeEngine, kind: PackedKind, num_rows: int) -> None:
    torch.manual_seed(num_rows)
    linear = random_linear(engine, kind, 83, 512, bias=True)
    assert linear.bias is not None
    x = torch.randn(num_rows, 512)
    x[0, 32:64] = 0.0
    weight = linear.unpack(torch.arange(83)).double()
    expected = quantized(engine.library, x) @ weight.T + linear.bias.double()
    slack = 1e-5 * float(expected.abs().max())
    assert torch.allclose(linear(x).double(), expected, rtol=1e-5, atol=slack)


def test_the_largest_codes_do_not_overflow(engine: NativeEngine) -> None:
    """Sums of 16 bits: every code at its end, every input at its end, of one sign."""
    for kind in PackedKind:
        linear = random_linear(engine, kind, 16, 512)
        record = 256 if kind <= 1 else 320 if kind <= 3 else 512
        segment = linear.segments[0]
        per_group = segment.data.numel() // (512 // 32)
        groups = segment.data.view(-1, per_group)
        groups[:, :record] = 63 if kind is PackedKind.Q6 else 255
        for sign in (1.0, -1.0):
            x = torch.full((5, 512), sign)
            expected = quantized(engine.library, x) @ linear.unpack(torch.arange(16)).double().T
            assert torch.allclose(linear(x).double(), expected, rtol=1e-5, atol=1e-3), kind


@pytest.mark.parametrize("kind", list(PackedKind))
def test_a_row_does_not_depend_on_its_company(engine: NativeEngine, kind: PackedKind) -> None:
    torch.manual_seed(1)
    linear = random_linear(engine, kind, 48, 256)
    x = torch.randn(150, 256)
    together = linear(x)
    for start, end in ((0, 1), (1, 3), (3, 6), (6, 10), (10, 75), (75, 150)):
        assert torch.equal(linear(x[start:end]), together[start:end])


def test_segments_of_different_kinds_are_one_weight(engine: NativeEngine) -> None:
    torch.manual_seed(2)
    parts = [
        random_linear(engine, kind, rows, 256)
        for kind, rows in ((PackedKind.Q5, 32), (PackedKind.Q4_MIN, 16), (PackedKind.Q8, 20))
    ]
    merged = PackedLinear(engine, [part.segments[0] for part in parts])
    x = torch.randn(6, 256)
    assert torch.equal(merged(x), torch.cat([part(x) for part in parts], dim=1))
    rows = torch.tensor([0, 31, 32, 47, 48, 67])
    expected = torch.cat([part.unpack(torch.arange(part.rows)) for part in parts])[rows]
    assert torch.equal(merged.unpack(rows), expected)


def test_threads_do_not_change_a_bit(library: ctypes.CDLL, engine: NativeEngine) -> None:
    torch.manual_seed(3)
    linear = random_linear(engine, PackedKind.Q5, 400, 256)
    x = torch.randn(33, 256)
    expected = linear(x)
    for num_threads in (1, 3):
        other = PackedLinear(NativeEngine(library, num_threads), linear.segments)
        assert torch.equal(other(x), expected)
