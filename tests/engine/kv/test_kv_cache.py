"""The cache's tensors: views of its layers and copies of its blocks, in every dtype."""

from __future__ import annotations

import pytest
import torch

from engine.kv.kv_cache import KVCache

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn]


@pytest.mark.parametrize("dtype", DTYPES)
def test_copied_blocks_and_no_others_change(dtype: torch.dtype) -> None:
    cache = KVCache(
        num_layers=2,
        num_blocks=5,
        block_size=4,
        num_kv_heads=3,
        head_dim=8,
        dtype=dtype,
        device=torch.device("cpu"),
    )
    before = []
    for layer in range(2):
        for values in cache.layer(layer):
            assert values.shape == (20, 3, 8)
            assert values.dtype == dtype
            values.copy_(torch.randn(20, 3, 8))
            before.append(values.float())
    cache.copy_blocks([(0, 3), (4, 1)])
    cache.copy_blocks([])
    after = [values.float() for layer in range(2) for values in cache.layer(layer)]
    for old, new in zip(before, after, strict=True):
        expected = old.view(5, 4, 3, 8)[[0, 4, 2, 0, 4]]
        assert torch.equal(new.view(5, 4, 3, 8), expected)


def test_a_token_in_8_bit_floats_takes_half_the_memory() -> None:
    sizes = [
        KVCache.bytes_per_token(num_layers=28, num_kv_heads=8, head_dim=128, dtype=dtype)
        for dtype in (torch.bfloat16, torch.float8_e4m3fn)
    ]
    assert sizes == [114_688, 57_344]
