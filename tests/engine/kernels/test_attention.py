"""Every attention implementation against plain causal attention over contiguous tensors."""

from __future__ import annotations

import pytest
import torch

from engine.kernels.attention import (
    AttentionKind,
    AttentionLayout,
    SequenceSpan,
    create_attention,
)
from engine.kv.kv_cache import KVCache

BLOCK = 4


def plain(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    window: int | None,
    soft_cap: float | None = None,
) -> torch.Tensor:
    """q [n, Hq, D] at the end of k, v [c, Hkv, D]; one query and one head at a time."""
    n, heads, _ = q.shape
    group = heads // k.shape[1]
    out = torch.empty_like(q)
    for i in range(n):
        last = k.shape[0] - n + i
        first = 0 if window is None else max(0, last - window + 1)
        for head in range(heads):
            keys, values = k[first : last + 1, head // group], v[first : last + 1, head // group]
            scores = keys @ q[i, head] * scale
            if soft_cap is not None:
                scores = soft_cap * torch.tanh(scores / soft_cap)
            out[i, head] = torch.softmax(scores, 0) @ values
    return out.flatten(1)


@pytest.mark.parametrize("kind", ["fused", "reference"])
@pytest.mark.parametrize("window", [None, 1, 6])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (7, 1)])
@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("soft_cap", [None, 0.5])
def test_matches_plain_attention(
    kind: AttentionKind,
    window: int | None,
    heads: int,
    kv_heads: int,
    contiguous: bool,
    soft_cap: float | None,
) -> None:
    torch.manual_seed(heads * 100 + kv_heads)
    dim = 8
    # (context before, new tokens): fresh prompts, chunks behind a prefix, decodes, block edges.
    shapes = [(0, 5), (8, 3), (9, 1), (0, 1), (4, 4), (15, 1)]
    num_blocks = 64
    cache = KVCache(
        num_layers=2,
        num_blocks=num_blocks,
        block_size=BLOCK,
        num_kv_heads=kv_heads,
        head_dim=dim,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    for layer in range(2):
        for tensor in cache.layer(layer):
            tensor.fill_(float("nan"))  # what was never written must never be read
    free = torch.randperm(num_blocks).tolist()
    run_start = 0
    total = sum(new for _, new in shapes)
    q = torch.randn(total, heads, dim)
    k, v = torch.randn(total, kv_heads, dim), torch.randn(total, kv_heads, dim)
    spans, slot_mapping, expected = [], [], []
    row = 0
    keys, values = cache.layer(1)
    for before, new in shapes:
        context = before + new
        if contiguous:
            slots = torch.arange(run_start, run_start + context)
            run_start += -(-context // BLOCK) * BLOCK
        else:
            blocks = [free.pop() for _ in range(-(-context // BLOCK))]
            slots = torch.tensor([blocks[i // BLOCK] * BLOCK + i % BLOCK for i in range(context)])
        old_k, old_v = torch.randn(before, kv_heads, dim), torch.randn(before, kv_heads, dim)
        keys[slots[:before]], values[slots[:before]] = old_k, old_v
        rows = slice(row, row + new)
        spans.append(
            SequenceSpan(row, new, context, int(slots[0]), None)
            if contiguous
            else SequenceSpan(row, new, context, None, slots)
        )
        slot_mapping.append(slots[before:])
        full_k, full_v = torch.cat([old_k, k[rows]]), torch.cat([old_v, v[rows]])
        expected.append(plain(q[rows], full_k, full_v, 0.3, window, soft_cap))
        row += new
    layout = AttentionLayout(torch.cat(slot_mapping), tuple(spans))
    attention = create_attention(kind, cache, layout)
    got = attention.attend(1, q, k, v, scale=0.3, window=window, soft_cap=soft_cap)
    torch.testing.assert_close(got, torch.cat(expected), rtol=1e-5, atol=1e-5)
    # The other layer is untouched, and a second layer of the same step may have another window.
    assert cache.layer(0)[0].isnan().all()
    again = attention.attend(1, q, k, v, scale=0.3, window=None, soft_cap=soft_cap)
    if window is None:
        torch.testing.assert_close(again, got)
    else:
        assert not torch.allclose(again, got)
