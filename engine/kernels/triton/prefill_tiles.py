"""Tiles of prompt chunks: the units of work of `prefill_attention`."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def build_tiles(
    query_starts: ArrayLike,
    num_queries: ArrayLike,
    first_positions: ArrayLike,
    slots: ArrayLike,
    tile_size: int,
) -> NDArray[np.int32]:
    """Cuts chunks into tiles of at most `tile_size` query rows.

    Chunk i is rows [query_starts[i], query_starts[i] + num_queries[i]) of q; its first row is the
    token at first_positions[i] of the request in slots[i]. Returns int32 [N, 4]: first row,
    number of rows, slot, position of the first row; tiles with the longest context first, so
    that the last programs to run are short ones."""
    starts, counts, positions, owners = (
        np.asarray(values, dtype=np.int64)
        for values in (query_starts, num_queries, first_positions, slots)
    )
    tiles_per_chunk = -(-counts // tile_size)
    chunk = np.repeat(np.arange(len(counts)), tiles_per_chunk)
    first_tile = np.cumsum(tiles_per_chunk) - tiles_per_chunk
    offset = (np.arange(len(chunk)) - first_tile[chunk]) * tile_size
    rows = np.minimum(counts[chunk] - offset, tile_size)
    position = positions[chunk] + offset
    order = np.argsort(-(position + rows), kind="stable")
    tiles = np.stack((starts[chunk] + offset, rows, owners[chunk], position), axis=1)
    return np.ascontiguousarray(tiles[order], dtype=np.int32)
