"""`GraphPool`: a step's launches, recorded once for each number of rows and replayed as one."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

logger = logging.getLogger(__name__)

START_ROWS = (1, 8, 32)
"""Buckets that are captured before the first request, besides the largest; the others when there
is nothing else to do, and until then a larger one serves in their place."""


def bucket_sizes(max_rows: int) -> list[int]:
    """Numbers of rows that graphs are made for, ascending; the last is `max_rows` or a bit more.
    Steps of 8 from 16 on, so that padding costs little, and wider ones where rows cost less."""
    sizes = [1, 2, 4, 8]
    for step, end in ((8, 128), (16, 256), (32, 512), (64, 1 << 30)):
        while sizes[-1] < min(end, max_rows):
            sizes.append(sizes[-1] + step)
    return [size for size in sizes if size < max_rows] + [
        next(size for size in sizes if size >= max_rows)
    ]


class GraphPool:
    """Captured graphs by bucket. Owned by the engine thread.

    `run(rows)` launches a step of `rows` rows on static buffers; what it allocates lives in one
    memory pool that all graphs share, since only one runs at a time. `clear(rows)` fills the
    buffers with rows that change nothing, for the run before a capture."""

    def __init__(
        self,
        run: Callable[[int], None],
        clear: Callable[[int], None],
        max_rows: int,
        *,
        is_capturing: bool = True,
    ) -> None:
        self._run = run
        self._clear = clear
        self.buckets = bucket_sizes(max_rows)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._is_capturing = is_capturing
        self._pool: tuple[int, int] | None = None
        self._to_capture: list[int] = []

    @property
    def max_rows(self) -> int:
        """The largest bucket."""
        return self.buckets[-1]

    @property
    def num_captured(self) -> int:
        """Graphs there are."""
        return len(self._graphs)

    def bucket_for(self, num_rows: int) -> int:
        """The bucket that a step of `num_rows` rows is padded to: the smallest captured one, or
        the smallest of all where nothing is captured."""
        fitting = [bucket for bucket in self.buckets if bucket >= num_rows]
        return next((bucket for bucket in fitting if bucket in self._graphs), fitting[0])

    def start(self) -> None:
        """Captures what is needed at once: the largest bucket first, whose memory the others then
        use, and a few small ones."""
        if not self._is_capturing:
            return
        first = {bucket for bucket in START_ROWS if bucket <= self.max_rows} | {self.max_rows}
        for bucket in sorted(first, reverse=True):
            self._capture(bucket)
        self._to_capture = [bucket for bucket in self.buckets if bucket not in first]

    def capture_one(self) -> bool:
        """Captures one more graph, if there is one to capture; whether any are left."""
        if self._to_capture:
            self._capture(self._to_capture.pop(0))
        return bool(self._to_capture)

    def launch(self, bucket: int) -> None:
        """Computes a step of `bucket` rows on what the static buffers hold."""
        graph = self._graphs.get(bucket)
        if graph is None:
            self._run(bucket)
        else:
            graph.replay()

    def _capture(self, bucket: int) -> None:
        self._clear(bucket)
        self._run(bucket)  # compiles kernels and makes workspaces, which a capture cannot
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            self._run(bucket)
        self._pool = self._pool or graph.pool()
        self._graphs[bucket] = graph
        logger.debug("Captured the graph of a step of %d rows.", bucket)
