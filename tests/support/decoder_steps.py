"""One step of a plain decoder, by `FusedDecoder` and by `Decoder` with plain attention."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.kernels.attention import AttentionLayout, SequenceSpan
from engine.kernels.reference import ReferenceAttention
from engine.kernels.triton.decode_work import DecodeWork
from engine.kernels.triton.paged_attention import PagedAttention, PagedLayout
from engine.kernels.triton.prefill_attention import prefill_tile_size
from engine.kernels.triton.prefill_tiles import build_tiles
from engine.kernels.triton.row_inputs import row_inputs
from engine.kv.kv_cache import KVCache
from engine.models.decoder import Decoder, DecoderLayer
from engine.models.feed_forward import FeedForward
from engine.models.fp8 import Fp8Linear
from engine.models.fused_decoder import FusedDecoder
from engine.models.linear import Linear, Projection

PADDING = -1
"""The slot of rows that stand for nothing."""


def with_layers(decoder: Decoder, layers: tuple[DecoderLayer, ...]) -> Decoder:
    """`decoder` with other layers."""
    return Decoder(
        decoder.config,
        embedding=decoder.embedding,
        layers=layers,
        final_norm=decoder.final_norm,
        head=decoder.head,
        rotaries=decoder.rotaries,
    )


def dequantized(decoder: Decoder) -> Decoder:
    """`decoder` with its 8-bit weights as numbers of its dtype: its products' inputs are not
    rounded to 8 bits."""

    def plain(projection: Projection) -> Projection:
        if not isinstance(projection, Fp8Linear):
            return projection
        weight = projection.codes.float() * projection.scales
        return Linear(weight.to(projection.dtype), projection.bias)

    layers = []
    for layer in decoder.layers:
        assert isinstance(layer.mlp, FeedForward)
        mlp = replace(layer.mlp, gate_up=plain(layer.gate_up), down=plain(layer.down))
        layers.append(replace(layer, qkv=plain(layer.qkv), output=plain(layer.output), mlp=mlp))
    return with_layers(decoder, tuple(layers))


@dataclass(frozen=True, slots=True)
class Step:
    """(slot, position) of rows that are each a query on its own, and of those of a prompt chunk."""

    single: tuple[tuple[int, int], ...]
    chunk: tuple[tuple[int, int], ...] = ()

    @property
    def rows(self) -> tuple[tuple[int, int], ...]:
        return self.single + self.chunk


class StepTrial:
    """Random tokens, and a cache in which everything that `step` does not attend to is NaN; blocks
    are shuffled, and block 0 is nobody's. What is computed is compared with `reference`, without
    one with `decoder` itself."""

    def __init__(
        self,
        decoder: Decoder,
        step: Step,
        *,
        block_size: int = 16,
        reference: Decoder | None = None,
    ) -> None:
        self.decoder = decoder
        self._reference = reference or decoder
        self.step = step
        self.block_size = block_size
        device = decoder.device
        self.is_real = torch.tensor([slot != PADDING for slot, _ in step.rows], device=device)
        vocab_size = decoder.config.vocab_size
        self.token_ids = torch.randint(1, vocab_size, (len(step.rows),), device=device)
        num_slots = 1 + max(slot for slot, _ in step.rows)
        width = 1 + max(position for _, position in step.rows) // block_size
        blocks = 1 + torch.randperm(num_slots * width).view(num_slots, width)
        padding = torch.zeros(1, width, dtype=torch.int64)
        self.tables = torch.cat([blocks, padding]).int().to(device)
        self.cache = self._new_cache()
        for values in self._layers(self.cache):
            for slot, first in (*step.single, *step.chunk[:1]):
                past = torch.randn(first, *values.shape[1:], device=device)
                values[self._cache_slots(slot, first)] = past.to(values.dtype)
        self.plain_cache = self._new_cache()
        for target, source in zip(
            self._layers(self.plain_cache), self._layers(self.cache), strict=True
        ):
            target.copy_(source)

    @torch.inference_mode()
    def check(self, tolerance: float) -> None:
        """Hidden states, and all of the cache, against the reference; errors relative to the
        largest number."""
        wanted, got = self._plain_forward(), self.fused_forward()
        assert wanted.isfinite().all()
        _check_close(got[self.is_real], wanted, tolerance)
        for values, plain_values in zip(
            self._layers(self.cache), self._layers(self.plain_cache), strict=True
        ):
            _check_close(values, plain_values, tolerance)

    @torch.inference_mode()
    def fused_forward(self, wanted: Tensor | None = None) -> Tensor:
        """Hidden states of all rows, or of those `wanted`."""
        step, cache, device = self.step, self.cache, self.decoder.device
        slots, positions = torch.tensor(step.rows, dtype=torch.int32).T.contiguous().to(device)
        slots[~self.is_real] = len(self.tables) - 1
        rows = row_inputs(
            slots,
            positions,
            self.token_ids.int(),
            self.tables,
            torch.zeros(len(self.tables), dtype=torch.int32, device=device),
            block_size=self.block_size,
        )
        num_single = len(step.single)
        work = DecodeWork(
            num_single,
            num_heads=self.decoder.config.num_heads,
            num_kv_heads=cache.num_kv_heads,
            head_dim=cache.head_dim,
            block_size=self.block_size,
            device=device,
            cache_dtype=cache.dtype,
        )
        lens = rows.context_lens[:num_single]
        work.plan(lens)
        tiles = None
        if step.chunk:
            (slot, first), size = step.chunk[0], len(step.chunk)
            tile = prefill_tile_size(cache.head_dim, cache.dtype, self.block_size, device)
            numbers = build_tiles([num_single], [size], [first], [slot], tile)
            tiles = torch.from_numpy(numbers).to(device)
        layout = PagedLayout(
            rows.cache_slots, self.tables, num_single, slots[:num_single], lens, tiles
        )
        attention = PagedAttention(cache, layout, work)
        return FusedDecoder(self.decoder, cache).forward(rows, attention, wanted)

    def _plain_forward(self) -> Tensor:
        """Hidden states of the rows that are no padding."""
        singles = [row for row in self.step.single if row[0] != PADDING]
        queries = [(*row, 1) for row in singles]
        if self.step.chunk:
            queries.append((*self.step.chunk[-1], len(self.step.chunk)))
        spans = tuple(
            SequenceSpan(start, count, last + 1, None, self._cache_slots(slot, last + 1))
            for start, (slot, last, count) in enumerate(queries)
        )
        rows = (*singles, *self.step.chunk)
        places = [self._cache_slots(slot, position + 1)[-1] for slot, position in rows]
        layout = AttentionLayout(torch.stack(places), spans)
        positions = torch.tensor([position for _, position in rows], device=self.decoder.device)
        return self._reference.forward(
            self.token_ids[self.is_real],
            positions,
            ReferenceAttention(self.plain_cache, layout),
        )

    def _new_cache(self) -> KVCache:
        config = self.decoder.config
        cache = KVCache(
            num_layers=len(self.decoder.layers),
            num_blocks=1 + self.tables.numel(),
            block_size=self.block_size,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            dtype=self.decoder.dtype,
            device=self.decoder.device,
        )
        for values in self._layers(cache):
            values.fill_(torch.nan)
        return cache

    def _layers(self, cache: KVCache) -> list[Tensor]:
        return [values for index in range(cache.num_layers) for values in cache.layer(index)]

    def written_slots(self) -> Tensor:
        """Where the step writes keys and values."""
        real = [row for row in self.step.rows if row[0] != PADDING]
        return torch.stack([self._cache_slots(slot, first + 1)[-1] for slot, first in real])

    def _cache_slots(self, slot: int, length: int) -> Tensor:
        """Where the first `length` tokens of `slot` lie."""
        tokens = torch.arange(length, device=self.tables.device)
        blocks = self.tables[slot].long()[tokens // self.block_size]
        return blocks * self.block_size + tokens % self.block_size


def _check_close(got: Tensor, wanted: Tensor, tolerance: float) -> None:
    atol = tolerance * float(wanted.nan_to_num().abs().max())
    torch.testing.assert_close(got, wanted, rtol=0.0, atol=atol, equal_nan=True)
