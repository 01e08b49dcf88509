"""`StepShape`: the sizes of a step, which a captured graph has fixed once and for all. No torch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from typing import NamedTuple

CHUNK_ROWS = (32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048)
"""Rows of prompt chunks that steps are padded to. Beyond, the GPU takes longer than the launches
of a step do, and a step is launched kernel by kernel as it is; but for one that uses the whole
budget of a step, as they come one behind the other when many prompts wait. Then the interpreter,
which has the requests to read as well, would be what the GPU waits for."""

FULL = 15 / 16
"""Of a step's budget, the part that must be used for a step to be padded to all of it."""

MIXED_SINGLE_ROWS = (0, 8, 32, 64, 128, 256, 512)
"""Single rows that steps with chunks are padded to."""

MAX_CHUNKS = 32
"""Chunks of a captured step: each may end with a tile that is not full, and may sample."""

START_ROWS = (1, 8, 32)
"""Steps without chunks that are captured before the first request, besides the largest; the others
follow when there is nothing else to do, and until then a larger one serves in their place."""


class StepShape(NamedTuple):
    """`num_single` rows that attend each on its own, then `num_chunk_rows` rows of chunks in
    `num_tiles` tiles; `num_samples` rows are sampled: all of them where there are no chunks."""

    num_single: int
    num_chunk_rows: int
    num_tiles: int
    num_samples: int

    @property
    def num_rows(self) -> int:
        """All rows."""
        return self.num_single + self.num_chunk_rows


def single_rows(max_rows: int) -> list[int]:
    """Numbers of single rows that graphs are made for, ascending; the last is `max_rows` or a bit
    more. In steps of 8, so that padding costs little, and wider ones where that is little, too."""
    sizes = [1, 2, 4, 8]
    for step, end in ((8, 128), (16, 256), (32, 512), (64, 1 << 30)):
        while sizes[-1] < min(end, max_rows):
            sizes.append(sizes[-1] + step)
    return [size for size in sizes if size < max_rows] + [
        next(size for size in sizes if size >= max_rows)
    ]


class StepShapes:
    """The shapes that are worth capturing, for up to `max_rows` single rows and `max_chunk_rows`
    rows of chunks in tiles of `tile_size` rows."""

    def __init__(self, max_rows: int, max_chunk_rows: int, tile_size: int) -> None:
        self._single = single_rows(max_rows)
        self.max_rows = self._single[-1]
        self.max_samples = self.max_rows + MAX_CHUNKS
        self._tile_size = tile_size
        self._chunk_rows = [rows for rows in CHUNK_ROWS if rows <= max_chunk_rows]
        self._full_rows = max_chunk_rows if max_chunk_rows > CHUNK_ROWS[-1] else None
        if self._full_rows is not None:
            self._chunk_rows.append(self._full_rows)
        self._mixed_single = [rows for rows in MIXED_SINGLE_ROWS if rows < self.max_rows]
        self._mixed_single.append(self.max_rows)
        self._single_shapes = [self._padded(rows, 0) for rows in self._single]
        self._all = frozenset((*self.at_start(), *self.later()))

    def at_start(self) -> list[StepShape]:
        """What the first requests need, the largest first: the others then use its memory."""
        rows = {rows for rows in START_ROWS if rows <= self.max_rows} | {self.max_rows}
        return [self._padded(size, 0) for size in sorted(rows, reverse=True)]

    def later(self) -> list[StepShape]:
        """All others, in the order in which they are missed most."""
        first = self.at_start()
        shapes = [self._padded(single, 0) for single in self._single]
        shapes += [
            self._padded(single, chunk_rows)
            for single in self._mixed_single
            for chunk_rows in self._chunk_rows
        ]
        return [shape for shape in shapes if shape not in first]

    def best(self, exact: StepShape, num_chunks: int) -> StepShape:
        """What `choose` would give if all shapes were captured."""
        return self.choose(exact, num_chunks, self._all)

    def choose(
        self, exact: StepShape, num_chunks: int, captured: Collection[StepShape]
    ) -> StepShape:
        """The shape that a step of the shape `exact` with `num_chunks` chunks is padded to: the
        captured one with the fewest rows in which it fits, or, where there is none, `exact`."""
        if num_chunks > MAX_CHUNKS:
            return exact
        if exact.num_chunk_rows == 0:
            first = bisect_left(self._single, exact.num_single)
            fits = (shape for shape in self._single_shapes[first:] if shape in captured)
            return next(fits, exact)
        fitting = [
            shape
            for single in self._mixed_single
            if single >= exact.num_single
            for chunk_rows in self._chunk_rows
            if chunk_rows >= exact.num_chunk_rows
            and (chunk_rows != self._full_rows or exact.num_chunk_rows >= FULL * chunk_rows)
            and (shape := self._padded(single, chunk_rows)) in captured
        ]
        return min(fitting, key=lambda shape: shape.num_rows, default=exact)

    def _padded(self, num_single: int, num_chunk_rows: int) -> StepShape:
        if num_chunk_rows == 0:
            return StepShape(num_single, 0, 0, num_single)
        num_tiles = -(-num_chunk_rows // self._tile_size) + MAX_CHUNKS
        return StepShape(num_single, num_chunk_rows, num_tiles, num_single + MAX_CHUNKS)
