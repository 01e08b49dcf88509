"""Native attention: against the plain reference, and the same bits however rows are computed."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.execution.flat_step import FlatStep, Ints
from engine.kernels.attention import AttentionLayout, SequenceSpan
from engine.kernels.native.library import NativeEngine, pointer
from engine.kernels.native.structs import CacheView, batch_struct
from engine.kernels.reference import ReferenceAttention
from engine.kv.kv_cache import KVCache

BLOCK = 16
NUM_BLOCKS = 128


@dataclass
class Paged:
    """One sequence's keys and values in a cache of its own, blocks in a random order."""

    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype = torch.float32
    seed: int = 0

    def __post_init__(self) -> None:
        self.cache = KVCache(
            num_layers=1,
            num_blocks=NUM_BLOCKS,
            block_size=BLOCK,
            num_kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            dtype=self.dtype,
            device=torch.device("cpu"),
        )
        for tensor in self.cache.layer(0):
            tensor.fill_(math.nan)  # what was never written must not be read
        order = np.random.default_rng(self.seed).permutation(NUM_BLOCKS)
        self.blocks = order.astype(np.int32)

    def slots(self, positions: Ints) -> Ints:
        blocks = self.blocks[positions // BLOCK].astype(np.int64)
        slots: Ints = blocks * BLOCK + positions % BLOCK
        return slots

    def step(self, start: int, count: int) -> FlatStep:
        positions = np.arange(start, start + count)
        one = np.array([0], dtype=np.int64)
        return FlatStep(
            positions,
            positions,
            self.slots(positions),
            one,
            np.array([count]),
            np.array([start + count]),
            one,
            self.blocks,
            one,
            (),
        )

    def attend(
        self,
        engine: NativeEngine,
        start: int,
        qkv: tuple[Tensor, Tensor, Tensor],
        window: int = 0,
    ) -> Tensor:
        """Native attention of the rows from `start` on."""
        q, k, v = (part.contiguous() for part in qkv)
        keys, values = self.cache.layer(0)
        view = CacheView(
            pointer(keys),
            pointer(values),
            int(self.dtype == torch.float16),
            self.kv_heads,
            self.head_dim,
            BLOCK,
        )
        step = self.step(start, len(q))
        scale = self.head_dim**-0.5
        return engine.attend(view, batch_struct(step), q, k, v, scale=scale, window=window)

    def reference(
        self, start: int, qkv: tuple[Tensor, Tensor, Tensor], window: int | None
    ) -> Tensor:
        q, k, v = qkv
        count = len(q)
        slots = torch.from_numpy(self.slots(np.arange(start + count)))
        span = SequenceSpan(0, count, start + count, None, slots)
        layout = AttentionLayout(slots[start:], (span,))
        scale = self.head_dim**-0.5
        return ReferenceAttention(self.cache, layout).attend(0, q, k, v, scale=scale, window=window)

    def random(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(count + self.seed)

        def draw(heads: int) -> Tensor:
            return torch.randn(count, heads, self.head_dim, generator=generator)

        return draw(self.heads) * 3, draw(self.kv_heads), draw(self.kv_heads)


def part_of(
    qkv: tuple[Tensor, Tensor, Tensor], start: int, end: int
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = qkv
    return q[start:end], k[start:end], v[start:end]


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (9, 3), (14, 2)])
@pytest.mark.parametrize("head_dim", [8, 64, 128])
@pytest.mark.parametrize("length", [1, 31, 33, 700])
def test_equals_the_reference(
    engine: NativeEngine, heads: int, kv_heads: int, head_dim: int, length: int
) -> None:
    native, plain = Paged(heads, kv_heads, head_dim), Paged(heads, kv_heads, head_dim)
    qkv = native.random(length)
    expected = plain.reference(0, qkv, None)
    assert torch.allclose(native.attend(engine, 0, qkv), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(
        torch.nan_to_num(native.cache.layer(0)[0]), torch.nan_to_num(plain.cache.layer(0)[0])
    )


@pytest.mark.parametrize("window", [1, 5, 32, 300, 5000])
def test_sliding_window(engine: NativeEngine, window: int) -> None:
    native, plain = Paged(4, 2, 64), Paged(4, 2, 64)
    qkv = native.random(650)
    expected = plain.reference(0, qkv, window)
    assert torch.allclose(native.attend(engine, 0, qkv, window), expected, rtol=1e-4, atol=1e-5)


def test_float16_cache_costs_only_its_rounding(engine: NativeEngine) -> None:
    half, full = Paged(6, 2, 64, torch.float16), Paged(6, 2, 64)
    qkv = half.random(120)
    got, expected = half.attend(engine, 0, qkv), full.attend(engine, 0, qkv)
    assert torch.allclose(got, expected, atol=2e-2)
    keys, values = (part.half().float() for part in qkv[1:])
    assert torch.equal(got, Paged(6, 2, 64).attend(engine, 0, (qkv[0], keys, values)))


@pytest.mark.parametrize("window", [0, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("head_dim", [8, 64, 128, 256])
def test_chunks_and_decodes_give_the_same_bits(
    engine: NativeEngine, head_dim: int, dtype: torch.dtype, window: int
) -> None:
    """A row's result is the same in a prefill, in a chunk of any size and in a decode, also
    across the borders of segments, which are computed by different threads."""
    whole, split = Paged(6, 2, head_dim, dtype), Paged(6, 2, head_dim, dtype, seed=5)
    qkv = whole.random(1100)
    expected = whole.attend(engine, 0, qkv, window)
    start = 0
    for size in (1, 16, 17, 300, 1, 5, 171, 1, 1, 500, 16, 16, 55):
        part = part_of(qkv, start, start + size)
        got = split.attend(engine, start, part, window)
        assert torch.equal(got, expected[start : start + size]), (start, size)
        start += size
    assert start == 1100


def test_large_scores_do_not_overflow(engine: NativeEngine) -> None:
    native, plain = Paged(2, 1, 64), Paged(2, 1, 64)
    q, k, v = native.random(200)
    qkv = (q * 100, k * 10, v)
    got = native.attend(engine, 0, qkv)
    assert torch.isfinite(got).all()
    assert torch.allclose(got, plain.reference(0, qkv, None), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_threads_do_not_change_a_bit(
    library: ctypes.CDLL, engine: NativeEngine, num_threads: int
) -> None:
    other = NativeEngine(library, num_threads)
    for count in (1, 16, 1100):
        first, second = Paged(6, 2, 64), Paged(6, 2, 64)
        qkv = first.random(count)
        assert torch.equal(second.attend(other, 0, qkv), first.attend(engine, 0, qkv))


def test_wrong_inputs_are_refused(library: ctypes.CDLL, engine: NativeEngine) -> None:
    paged = Paged(2, 1, 64)
    q, k, v = paged.random(3)
    with pytest.raises(ValueError, match="float32"):
        paged.attend(engine, 0, (q.double(), k, v))
    with pytest.raises(ValueError, match="num_threads"):
        NativeEngine(library, 0)
    for head_dim, is_fit in ((8, True), (256, True), (264, False), (12, False)):
        assert bool(library.lectern_can_attend(head_dim)) is is_fit
