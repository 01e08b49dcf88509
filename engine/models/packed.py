"""Packed weights: 4 to 8 bits a weight, as the native kernels read them.

Codes of a GGUF file are kept as they are; floats are rounded to the nearest codes. Inputs of their
products are quantized to int8, with a scale for each 32 columns of each row: so a row's result
depends on no other row."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from engine.kernels.native.library import NativeEngine, pointer
from engine.kernels.native.structs import Linear as LinearStruct
from engine.kernels.native.structs import Segment as SegmentStruct
from engine.models.blocks import BlockSource
from engine.models.linear import Embedding, Projection
from engine.models.weights import TensorSource, WeightReader

TILE_ROWS = 16
GROUP_COLUMNS = 32


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


class PackedWeightReader(WeightReader):
    """Implements `Weights` with packed projections. Everything else is float32. Used by one
    thread.

    `kind` None keeps a file's own codes where they have a packed form and rounds the rest to 8
    bits; else everything is rounded to `kind`."""

    def __init__(
        self,
        source: TensorSource,
        engine: NativeEngine,
        kind: PackedKind | None,
        *,
        on_fraction: Callable[[float], None] | None = None,
    ) -> None:
        super().__init__(
            source,
            dtype=torch.float32,
            device=torch.device("cpu"),
            on_fraction=on_fraction,
        )
        self._engine = engine
        self._kind = kind

    def linear(
        self, parts: Sequence[tuple[str, int]], columns: int, *, bias: bool = False
    ) -> Projection:
        """See `Weights.linear`."""
        if columns % GROUP_COLUMNS:
            return super().linear(parts, columns, bias=bias)
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
            return super().embedding(name, shape)
        return PackedEmbedding(PackedLinear(self._engine, [self._pack(f"{name}.weight", shape)]))

    def _pack(self, name: str, shape: tuple[int, int]) -> PackedSegment:
        if self._kind is not None or not isinstance(self._source, BlockSource):
            return self._round(self.take(name, shape))
        self.claim(name, shape)
        blocks = self._source.blocks(name)
        library = self._engine.library
        kind = library.lectern_kind_of_source(blocks.kind)
        if kind < 0:
            return self._round(self._source.tensor(name).float())
        data = self._empty(kind, *shape)
        library.lectern_pack_blocks(
            blocks.kind,
            pointer(blocks.data),
            *shape,
            None if blocks.row_map is None else pointer(blocks.row_map),
            pointer(data),
            self._engine.num_threads,
        )
        self.tell()
        return PackedSegment(PackedKind(kind), *shape, data)

    def _round(self, values: Tensor) -> PackedSegment:
        kind = PackedKind.Q8 if self._kind is None else self._kind
        rows, columns = values.shape
        values = values.contiguous()
        data = self._empty(kind, rows, columns)
        self._engine.library.lectern_pack_floats(
            kind, pointer(values), rows, columns, pointer(data), self._engine.num_threads
        )
        return PackedSegment(kind, rows, columns, data)

    def _empty(self, kind: int, rows: int, columns: int) -> Tensor:
        size = self._engine.library.lectern_packed_bytes(kind, rows, columns)
        return torch.empty(size, dtype=torch.uint8)


def _whole_tiles(rows: int) -> int:
    return -(-rows // TILE_ROWS) * TILE_ROWS
