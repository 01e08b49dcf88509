"""Packed weights for tests."""

from __future__ import annotations

import numpy as np
import torch
from gguf import GGMLQuantizationType
from gguf.quants import quantize
from torch import Tensor

from engine.kernels.native.library import NativeEngine, pointer
from engine.models.packed import PackedKind, PackedLinear, PackedSegment

SOURCES = {
    PackedKind.Q4: GGMLQuantizationType.Q4_0,
    PackedKind.Q4_MIN: GGMLQuantizationType.Q4_1,
    PackedKind.Q5: GGMLQuantizationType.Q5_0,
    PackedKind.Q5_MIN: GGMLQuantizationType.Q5_1,
    PackedKind.Q8: GGMLQuantizationType.Q8_0,
}
"""Kinds of blocks that the `gguf` package can write and that have each packed form."""


def random_blocks(kind: GGMLQuantizationType, rows: int, columns: int, seed: int = 0) -> Tensor:
    """Rows of GGUF blocks, uint8 [rows, bytes]. Blocks that the `gguf` package cannot write are
    random bytes with a sane scale."""
    generator = np.random.default_rng(seed)
    if kind in SOURCES.values():
        values = generator.normal(size=(rows, columns)).astype(np.float32)
        return torch.from_numpy(quantize(values, kind))
    size, scale_at = {
        GGMLQuantizationType.Q4_K: (144, (0, 2)),
        GGMLQuantizationType.Q5_K: (176, (0, 2)),
        GGMLQuantizationType.Q6_K: (210, (208,)),
    }[kind]
    blocks = generator.integers(0, 256, (rows, columns // 256, size), dtype=np.uint8)
    for at in scale_at:
        scales = generator.uniform(0.001, 0.02, blocks.shape[:2]).astype(np.float16)
        blocks[:, :, at : at + 2] = scales[..., None].view(np.uint8)
    return torch.from_numpy(blocks.reshape(rows, -1))


def pack(
    engine: NativeEngine,
    source: GGMLQuantizationType,
    blocks: Tensor,
    columns: int,
    row_map: Tensor | None = None,
) -> PackedSegment:
    library, rows = engine.library, blocks.shape[0]
    kind = library.lectern_kind_of_source(int(source))
    data = torch.empty(library.lectern_packed_bytes(kind, rows, columns), dtype=torch.uint8)
    library.lectern_pack_blocks(
        int(source),
        pointer(blocks),
        rows,
        columns,
        None if row_map is None else pointer(row_map),
        pointer(data),
        2,
    )
    return PackedSegment(PackedKind(kind), rows, columns, data)


def random_linear(
    engine: NativeEngine, kind: PackedKind, rows: int, columns: int, *, bias: bool = False
) -> PackedLinear:
    source = GGMLQuantizationType.Q6_K if kind is PackedKind.Q6 else SOURCES[kind]
    segment = pack(engine, source, random_blocks(source, rows, columns), columns)
    return PackedLinear(engine, [segment], torch.randn(rows) if bias else None)
