"""The fused forward pass under Triton's interpreter against `Decoder` with plain attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from engine.config import EngineConfig
from engine.kernels.attention import AttentionLayout, SequenceSpan
from engine.kernels.reference import ReferenceAttention
from engine.kernels.triton.decode_work import DecodeWork
from engine.kernels.triton.paged_attention import PagedAttention, PagedLayout
from engine.kernels.triton.prefill_attention import prefill_tile_size
from engine.kernels.triton.prefill_tiles import build_tiles
from engine.kernels.triton.row_inputs import row_inputs
from engine.kv.kv_cache import KVCache
from engine.models import fp8, fused_decoder
from engine.models.decoder import Decoder, DecoderLayer
from engine.models.fp8 import Fp8Linear
from engine.models.fused_decoder import FusedDecoder, can_fuse
from engine.models.registry import load_model
from tests.engine.kernels.triton.float8_cast import exact_float8_cast
from tests.support.triton_interpreter import accept_scalar_arrays

__all__ = ["exact_float8_cast"]
pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="for Triton's interpreter"),
    # Padding rows compute with what is poisoned.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

accept_scalar_arrays()

CPU = torch.device("cpu")
BLOCK_SIZE = 16
TABLES = torch.tensor([[5, 2, 0], [3, 0, 0], [1, 6, 0], [0, 0, 0]], dtype=torch.int32)
"""Blocks of three slots; block 0 is nobody's, and the last slot is that of padding rows."""
PADDING = 3
NUM_BLOCKS = 7


@dataclass(frozen=True, slots=True)
class Step:
    """(slot, position) of rows that are each a query on its own, and of those of a prompt chunk."""

    single: tuple[tuple[int, int], ...]
    chunk: tuple[tuple[int, int], ...] = ()


MIXED = Step(((0, 20), (PADDING, 0), (1, 0)), ((2, 15), (2, 16), (2, 17)))
ONE = Step(((0, 16),))
THREE = Step(((1, 0), (PADDING, 0), (0, 20)))


@pytest.fixture
def poisoned_outputs() -> Iterator[None]:
    """New tensors of numbers are full of NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Notes the products of the streaming path."""
    spy = Mock(wraps=fused_decoder.skinny_linear)
    monkeypatch.setattr(fused_decoder, "skinny_linear", spy)
    return spy


def load(folder: Path, quantization: Literal["none", "fp8"] = "none") -> Decoder:
    config = EngineConfig(model=folder, dtype="float32", device="cpu")
    model = load_model(replace(config, quantization=quantization)).model
    assert can_fuse(model)
    return model


def with_layers(decoder: Decoder, layers: tuple[DecoderLayer, ...]) -> Decoder:
    return Decoder(
        decoder.config,
        embedding=decoder.embedding,
        layers=layers,
        final_norm=decoder.final_norm,
        head=decoder.head,
        rotaries=decoder.rotaries,
    )


def filled_cache(decoder: Decoder, step: Step) -> KVCache:
    """What the step's rows attend to besides themselves is random, everything else is NaN."""
    config = decoder.config
    cache = KVCache(
        num_layers=config.num_layers,
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        dtype=decoder.dtype,
        device=CPU,
    )
    for layer in range(config.num_layers):
        for values in cache.layer(layer):
            values.fill_(torch.nan)
            for slot, first in (*step.single, *step.chunk[:1]):
                values[cache_slots(slot, first)] = torch.randn(first, *values.shape[1:])
    return cache


def cache_slots(slot: int, length: int) -> Tensor:
    tokens = torch.arange(length)
    return TABLES[slot].long()[tokens // BLOCK_SIZE] * BLOCK_SIZE + tokens % BLOCK_SIZE


def copied(cache: KVCache, decoder: Decoder) -> KVCache:
    copy = filled_cache(decoder, Step(()))
    for layer in range(cache.num_layers):
        for target, source in zip(copy.layer(layer), cache.layer(layer), strict=True):
            target.copy_(source)
    return copy


def fused_forward(decoder: Decoder, cache: KVCache, step: Step, token_ids: Tensor) -> Tensor:
    slots, positions = torch.tensor(step.single + step.chunk, dtype=torch.int32).T.contiguous()
    rows = row_inputs(
        slots,
        positions,
        token_ids.int(),
        TABLES,
        torch.zeros(len(TABLES), dtype=torch.int32),
        block_size=BLOCK_SIZE,
    )
    num_single = len(step.single)
    work = DecodeWork(
        num_single,
        num_heads=decoder.config.num_heads,
        num_kv_heads=cache.num_kv_heads,
        head_dim=cache.head_dim,
        block_size=BLOCK_SIZE,
        device=CPU,
        cache_dtype=cache.dtype,
    )
    lens = rows.context_lens[:num_single]
    work.plan(lens)
    tiles = None
    if step.chunk:
        (slot, first), size = step.chunk[0], len(step.chunk)
        tile = prefill_tile_size(cache.head_dim, cache.dtype, BLOCK_SIZE, CPU)
        tiles = torch.from_numpy(build_tiles([num_single], [size], [first], [slot], tile))
    layout = PagedLayout(rows.cache_slots, TABLES, num_single, slots[:num_single], lens, tiles)
    return FusedDecoder(decoder, cache).forward(rows, PagedAttention(cache, layout, work))


def plain_forward(decoder: Decoder, cache: KVCache, step: Step, token_ids: Tensor) -> Tensor:
    """The hidden states of the rows that are no padding."""
    rows = [row for row in step.single + step.chunk if row[0] != PADDING]
    spans: list[SequenceSpan] = []
    for slot, position in rows:
        start, is_more = len(spans), (slot, position) in step.chunk[1:]
        if is_more:
            start, count = spans[-1].query_start, spans.pop().num_queries + 1
        else:
            start, count = sum(span.num_queries for span in spans), 1
        spans.append(
            SequenceSpan(start, count, position + 1, None, cache_slots(slot, position + 1))
        )
    mapping = torch.stack([cache_slots(slot, position + 1)[-1] for slot, position in rows])
    attention = ReferenceAttention(cache, AttentionLayout(mapping, tuple(spans)))
    positions = torch.tensor([position for _, position in rows])
    return decoder.forward(token_ids, positions, attention)


@torch.inference_mode()
def check(decoder: Decoder, step: Step, *, tolerance: float = 1e-5) -> None:
    """Hidden states, and all of the cache."""
    is_real = torch.tensor([slot != PADDING for slot, _ in step.single + step.chunk])
    token_ids = torch.randint(1, decoder.config.vocab_size, is_real.shape)
    cache = filled_cache(decoder, step)
    expected_cache = copied(cache, decoder)
    expected = plain_forward(decoder, expected_cache, step, token_ids[is_real])
    got = fused_forward(decoder, cache, step, token_ids)
    assert expected.isfinite().all()
    atol = tolerance * float(expected.abs().max())
    torch.testing.assert_close(got[is_real], expected, rtol=0.0, atol=atol)
    for layer in range(cache.num_layers):
        for values, wanted in zip(cache.layer(layer), expected_cache.layer(layer), strict=True):
            atol = tolerance * float(wanted.nan_to_num().abs().max())
            torch.testing.assert_close(values, wanted, rtol=0.0, atol=atol, equal_nan=True)


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
@pytest.mark.usefixtures("poisoned_outputs")
def test_decodes_with_a_chunk(name: str, streamed: Mock, tiny_model: Callable[[str], Path]) -> None:
    """Without more, with biases before attention, and with norms of queries and keys."""
    decoder = load(tiny_model(name))
    torch.manual_seed(6)
    check(decoder, MIXED)
    assert not streamed.called


@pytest.mark.parametrize(
    ("name", "step", "num_layers"), [("qwen3", ONE, 2), ("qwen2", THREE, 1)], ids=["one", "three"]
)
@pytest.mark.usefixtures("poisoned_outputs")
def test_a_few_rows_are_streamed(
    name: str, step: Step, num_layers: int, streamed: Mock, tiny_model: Callable[[str], Path]
) -> None:
    decoder = load(tiny_model(name))
    decoder = with_layers(decoder, decoder.layers[:num_layers])
    torch.manual_seed(3)
    check(decoder, step)
    assert streamed.call_count == 3 * num_layers


@pytest.mark.usefixtures("poisoned_outputs")
def test_a_bias_before_the_gate_is_not_streamed(
    streamed: Mock, tiny_model: Callable[[str], Path]
) -> None:
    check(load(tiny_model("llama_biases")), ONE)
    assert not streamed.called


@pytest.mark.parametrize("step", [MIXED, ONE], ids=["mixed", "one"])
@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
@pytest.mark.usefixtures("poisoned_outputs", "exact_float8_cast")
def test_8_bit_weights(
    name: str,
    step: Step,
    streamed: Mock,
    tiny_model: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only what comes from attention is quantized on its own. An input that is rounded otherwise
    has another code, and there would be many."""
    decoder = load(tiny_model(name), "fp8")
    assert all(isinstance(layer.qkv, Fp8Linear) for layer in decoder.layers)
    torch.manual_seed(8)
    check(decoder, step)
    assert not streamed.called
    spy = Mock(wraps=fp8.quantize_rows)
    monkeypatch.setattr(fp8, "quantize_rows", spy)
    cache, num_rows = filled_cache(decoder, step), len(step.single + step.chunk)
    with torch.inference_mode():
        fused_forward(decoder, cache, step, torch.ones(num_rows, dtype=torch.int64))
    assert spy.call_count == decoder.config.num_layers


@pytest.mark.usefixtures("poisoned_outputs", "exact_float8_cast")
def test_a_projection_that_cannot_be_rounded_stays_as_it_is(
    tiny_model: Callable[[str], Path],
) -> None:
    """One layer's projections may be kept in different ways."""
    plain, rounded = load(tiny_model("llama")), load(tiny_model("llama"), "fp8")
    first, second = rounded.layers
    mixed = (
        replace(first, qkv=plain.layers[0].qkv, output=plain.layers[0].output),
        replace(second, mlp=plain.layers[1].mlp),
    )
    check(with_layers(rounded, mixed), THREE)
