"""`GraphPool`: a step's launches, recorded once for each shape and replayed as one."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from engine.execution.step_shapes import StepShape

logger = logging.getLogger(__name__)

MIN_FREE = 256 << 20
"""Bytes of the GPU's memory that must be free for one more graph."""


MAX_MISSES = 50
"""After so many steps that a graph was missing for, it is captured between two steps: a server
under steady load is never idle."""


class GraphPool:
    """Captured graphs by the shape of the step. Owned by the engine thread.

    `run(shape)` launches a step on static buffers; what it allocates lives in one memory pool
    that all graphs share, since only one runs at a time. `clear(shape)` fills the buffers with
    rows that change nothing, for the run before a capture."""

    def __init__(
        self, run: Callable[[StepShape], None], clear: Callable[[StepShape], None]
    ) -> None:
        self._run = run
        self._clear = clear
        self._graphs: dict[StepShape, torch.cuda.CUDAGraph] = {}
        self._pool: Any = None
        self._to_capture: list[StepShape] = []
        self._misses: Counter[StepShape] = Counter()

    @property
    def captured(self) -> Collection[StepShape]:
        """The shapes there are graphs for."""
        return self._graphs.keys()

    def capture(self, shapes: Iterable[StepShape]) -> None:
        """Captures graphs for `shapes`, now."""
        for shape in shapes:
            self._capture(shape)

    def put_off(self, shapes: Iterable[StepShape]) -> None:
        """Leaves `shapes` to `capture_one`."""
        self._to_capture += shapes

    def capture_one(self) -> bool:
        """Captures one of the shapes that were put off; whether any are left. Where memory is
        short there are no more graphs: without them a step is slower, and not impossible."""
        if self._to_capture:
            self._capture_put_off(self._to_capture[0])
        return bool(self._to_capture)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is put off."""
        return not self._to_capture

    def miss(self, shape: StepShape) -> None:
        """A step is about to be launched as another shape, or without a graph, for want of this
        one. Captures it if that has happened often; the step's inputs are sent after that."""
        self._misses[shape] += 1
        if self._misses[shape] >= MAX_MISSES and shape in self._to_capture:
            self._capture_put_off(shape)

    def _capture_put_off(self, shape: StepShape) -> None:
        if torch.cuda.mem_get_info()[0] < MIN_FREE:
            logger.warning("No memory is left for %d more graphs.", len(self._to_capture))
            self._to_capture.clear()
            return
        self._to_capture.remove(shape)
        self._capture(shape)

    def launch(self, shape: StepShape) -> None:
        """Computes a step of this shape on what the static buffers hold: as one graph, or, where
        none was captured, kernel by kernel."""
        graph = self._graphs.get(shape)
        if graph is None:
            self._run(shape)
        else:
            graph.replay()

    def _capture(self, shape: StepShape) -> None:
        self._clear(shape)
        self._run(shape)  # compiles kernels and makes workspaces, which a capture cannot
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with (
            _no_collection(),
            torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
        ):
            self._run(shape)
        self._pool = self._pool or graph.pool()
        self._graphs[shape] = graph
        logger.debug("Captured the graph of %s.", shape)


@contextmanager
def _no_collection() -> Iterator[None]:
    """What a collection finds may free GPU memory or another graph, which ends a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
