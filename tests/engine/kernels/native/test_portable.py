"""The plain C++ that other processors get: the same weights and, up to rounding, the same
products and attention."""

from __future__ import annotations

import ctypes

import pytest
import torch

from engine.kernels.native.build import FLAGS, compile_library, find_compiler
from engine.kernels.native.library import NativeEngine, open_library
from engine.models.packed import PackedKind, PackedLinear
from tests.engine.kernels.native.packing import random_linear
from tests.engine.kernels.native.test_attention import Paged


@pytest.fixture(scope="module")
def portable(library: ctypes.CDLL, tmp_path_factory: pytest.TempPathFactory) -> NativeEngine:
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C++ compiler")
    path = tmp_path_factory.mktemp("portable") / "library.so"
    # Quick to compile, and without any instruction that only some processors have.
    flags = [flag for flag in FLAGS if flag not in ("-march=native", "-O3")]
    compile_library(compiler, path, [*flags, "-O1", "-Wno-psabi"])
    return NativeEngine(open_library(path), num_threads=2)


@pytest.mark.parametrize("kind", list(PackedKind))
def test_products(engine: NativeEngine, portable: NativeEngine, kind: PackedKind) -> None:
    torch.manual_seed(0)
    fast = random_linear(engine, kind, 40, 512)
    plain = PackedLinear(portable, fast.segments)
    assert torch.equal(plain.unpack(torch.arange(40)), fast.unpack(torch.arange(40)))
    x = torch.randn(9, 512)
    expected = fast(x)
    assert torch.allclose(plain(x), expected, rtol=1e-4, atol=1e-4 * float(expected.std()))
    assert torch.equal(plain(x[3:5]), plain(x)[3:5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_attention(engine: NativeEngine, portable: NativeEngine, dtype: torch.dtype) -> None:
    fast, plain = Paged(6, 2, 64, dtype), Paged(6, 2, 64, dtype)
    qkv = fast.random(600)
    expected = fast.attend(engine, 0, qkv)
    assert torch.allclose(plain.attend(portable, 0, qkv), expected, rtol=1e-4, atol=1e-5)


def test_float16_is_rounded_alike(engine: NativeEngine, portable: NativeEngine) -> None:
    """Also numbers under the normal ones, ties, and those too large."""
    values = torch.tensor(
        [
            0.0,
            -0.0,
            1.0,
            65504.0,
            65519.9,
            65520.0,
            1e9,
            6e-8,
            2.9e-8,
            3.1e-8,
            6.1e-5,
            1.00048828125,
        ]
    )
    heads = torch.cat([values, -values, torch.linspace(-7e-5, 7e-5, 40)])[None, None, :64]
    caches = []
    for used in (engine, portable):
        paged = Paged(1, 1, 64, torch.float16)
        paged.attend(used, 0, (torch.zeros(1, 1, 64), heads.contiguous(), heads.contiguous()))
        slot = int(paged.blocks[0]) * 16
        caches.append([part[slot].view(torch.int16) for part in paged.cache.layer(0)])
    assert torch.equal(caches[0][0], caches[1][0])
    assert torch.equal(caches[0][0].view(torch.float16), heads[0].half())
