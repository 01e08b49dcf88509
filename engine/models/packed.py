"""Packed weights: 4 to 8 bits a weight, as the native kernels read them.

Codes of a GGUF file are kept as they are; floats are rounded to the nearest codes. Inputs of their
products are quantized to int8, with a scale for each 32 columns of each row: so a row's result
depends on no other row."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from engine.kernels.native.library import NativeEngine, check, pointer
from engine.kernels.native.structs import GROUP_COLUMNS, TILE_ROWS
from engine.kernels.native.structs import Linear as LinearStruct
from engine.kernels.native.structs import Segment as SegmentStruct
from engine.models.blocks import BlockSource
from engine.models.linear import Embedding, Projection
from engine.models.weights import PlainWeights


class PackedKind(IntEnum):
    """packed.h: how codes, scales and minima are kept."""

    Q4 = 0
    Q4_MIN = 1
    Q5 = 2
    Q5_MIN = 3
    Q6 = 4
    Q8 = 5


@dataclass(frozen=True, slots=True)
class PackedSegment:
    """Rows of one kind. `data` uint8 has whole tiles; rows past `rows` are zero."""

    kind: PackedKind
    rows: int
    columns: int
    data: Tensor


class PackedLinear:
    """Implements `Projection`, and `Embedding` where it is a table. Immutable; used by the thread
    that owns `engine`."""

    def __init__(
        self, engine: NativeEngine, segments: Sequence[PackedSegment], bias: Tensor | None = None
    ) -> None:
        """All segments but the last have whole tiles. `bias` [rows] is float32."""
        assert all(segment.rows % TILE_ROWS == 0 for segment in segments[:-1])
        self.segments = tuple(segments)
        self.bias = bias
        self.rows = sum(segment.rows for segment in segments)
        self.columns = segments[0].columns
        self._engine = engine
        self._array = (SegmentStruct * len(segments))(
            *(
                SegmentStruct(pointer(segment.data), _whole_tiles(segment.rows), segment.kind)
                for segment in segments
            )
        )
        self.struct = LinearStruct(
            ctypes.cast(self._array, ctypes.POINTER(SegmentStruct)),
            len(segments),
            self.columns,
            self.rows,
            None if bias is None else pointer(bias),
        )

    def __call__(self, x: Tensor) -> Tensor:
        """[T, columns] → [T, rows] float32"""
        return self._engine.multiply(self.struct, x)

    def unpack(self, rows: Tensor) -> Tensor:
        """Rows `rows` (int64 [N]) as float32 [N, columns]."""
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self.rows:
            raise IndexError(f"a row is outside 0 to {self.rows - 1}")
        rows = rows.contiguous()
        out = torch.empty(rows.shape[0], self.columns)
        self._engine.library.lectern_unpack_rows(
            self.struct, pointer(rows), rows.shape[0], pointer(out)
        )
        return out


class PackedEmbedding:
    """Implements `Embedding` over a packed table."""

    dtype = torch.float32
    device = torch.device("cpu")

    def __init__(self, table: PackedLinear) -> None:
        self.table = table

    def __call__(self, token_ids: Tensor) -> Tensor:
        """int64 [T] → [T, hidden] float32"""
        return self.table.unpack(token_ids)

    def as_projection(self) -> Projection:
        """The table as a tied output head; shares its memory."""
        return self.table


class PackedWeights:
    """Implements `Weights` with packed projections; everything else is as `weights` gives it.
    Used by one thread.

    `kind` None keeps the codes of `blocks` where they have a packed form and rounds the rest to 8
    bits; else everything is rounded to `kind`."""

    def __init__(
        self,
        weights: PlainWeights,
        engine: NativeEngine,
        kind: PackedKind | None,
        blocks: BlockSource | None = None,
    ) -> None:
        """`weights` are float32 on the CPU; `blocks` are the same weights as their file has
        them."""
        self._weights = weights
        self._engine = engine
        self._kind = kind
        self._blocks = blocks

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """See `Weights.take`."""
        return self._weights.take(name, shape)

    def take_merged(self, parts: Sequence[tuple[str, tuple[int, ...]]]) -> Tensor:
        """See `Weights.take_merged`."""
        return self._weights.take_merged(parts)

    def skip(self, name: str) -> None:
        """See `Weights.skip`."""
        self._weights.skip(name)

    def finish(self) -> None:
        """See `Weights.finish`."""
        self._weights.finish()

    def linear(
        self, parts: Sequence[tuple[str, int]], columns: int, *, bias: bool = False
    ) -> Projection:
        """See `Weights.linear`."""
        if columns % GROUP_COLUMNS:
            return self._weights.linear(parts, columns, bias=bias)
        biases = None
        if bias:
            biases = self.take_merged([(f"{name}.bias", (rows,)) for name, rows in parts])
        weights = [(f"{name}.weight", (rows, columns)) for name, rows in parts]
        if any(rows % TILE_ROWS for _, rows in parts[:-1]):
            segments = [self._round(self.take_merged(weights))]
        else:
            segments = [self._pack(name, shape) for name, shape in weights]
        return PackedLinear(self._engine, segments, biases)

    def embedding(self, name: str, shape: tuple[int, int]) -> Embedding:
        """See `Weights.embedding`."""
        if shape[1] % GROUP_COLUMNS:
            return self._weights.embedding(name, shape)
        return PackedEmbedding(PackedLinear(self._engine, [self._pack(f"{name}.weight", shape)]))

    def _pack(self, name: str, shape: tuple[int, int]) -> PackedSegment:
        self._weights.claim(name, shape)
        library = self._engine.library
        found = None
        if self._kind is None and self._blocks is not None:
            found = self._blocks.blocks(name)
        kind = -1 if found is None else library.lectern_kind_of_source(found.kind)
        if found is None or kind < 0:
            return self._round(self.take(name, shape))
        data = self._empty(kind, *shape)
        status = library.lectern_pack_blocks(
            found.kind,
            pointer(found.data),
            *shape,
            None if found.row_map is None else pointer(found.row_map),
            pointer(data),
            self._engine.num_threads,
        )
        check(status)
        return PackedSegment(PackedKind(kind), *shape, data)

    def _round(self, values: Tensor) -> PackedSegment:
        kind = PackedKind.Q8 if self._kind is None else self._kind
        rows, columns = values.shape
        values = values.contiguous()
        data = self._empty(kind, rows, columns)
        status = self._engine.library.lectern_pack_floats(
            kind, pointer(values), rows, columns, pointer(data), self._engine.num_threads
        )
        check(status)
        return PackedSegment(kind, rows, columns, data)

    def _empty(self, kind: int, rows: int, columns: int) -> Tensor:
        size = self._engine.library.lectern_packed_bytes(kind, rows, columns)
        return torch.empty(size, dtype=torch.uint8)


def _whole_tiles(rows: int) -> int:
    return -(-rows // TILE_ROWS) * TILE_ROWS
