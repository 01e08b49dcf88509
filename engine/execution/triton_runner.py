"""`TritonModelRunner`: steps on a GPU, two in flight.

A request's block table, its last token and its sampling parameters live on the GPU, in its slot.
A step sends what the GPU cannot know: which slots, at which positions. It is one captured graph,
sampling and all, unless it has thousands of rows: then it is launched kernel by kernel. What was
sampled goes to the host while the next step runs, which takes it from the slots.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.execution.cuda_graphs import GraphPool
from engine.execution.device_sampler import DeviceSampler, SampledRows, wants_logprobs
from engine.execution.request_slots import RequestSlots
from engine.execution.runner import DoneStep, LaunchedStep, StepResult
from engine.execution.staging import ALIGNMENT, Download, Staging, aligned
from engine.execution.step_rows import Chunk, StepRows, lay_out
from engine.execution.step_shapes import StepShape, StepShapes
from engine.kernels.triton.compile_ahead import compile_ahead
from engine.kernels.triton.decode_work import DecodeWork
from engine.kernels.triton.paged_attention import PagedAttention, PagedLayout
from engine.kernels.triton.prefill_attention import prefill_tile_size
from engine.kernels.triton.prefill_tiles import build_tiles
from engine.kernels.triton.row_inputs import RowInputs, row_inputs, set_table_entries
from engine.kv.kv_cache import KVCache
from engine.models.causal_model import CausalModel
from engine.models.decoder import Decoder
from engine.models.fused_decoder import FusedDecoder, can_fuse
from engine.scheduling.scheduler_output import ScheduledSequence, SchedulerOutput
from engine.types import RequestId

logger = logging.getLogger(__name__)

MIN_ROWS = 64
"""The largest step without chunks has at least so many rows, so that short prompt chunks fit in
beside decodes also where few sequences may run."""

MAX_ENTRIES = 65_536
"""New entries of block tables that are sent at once: a million tokens in blocks of 16."""

_SAMPLES = 1
"""In the sampler's terms: draw, and the token is the sequence's next."""

_NUM_ARRAYS = 8
"""Sent for a step with chunks."""


@dataclass(frozen=True, slots=True)
class _RunningStep:
    """Implements `LaunchedStep`: `items` sampled in `rows` of what is being downloaded."""

    sampler: DeviceSampler
    items: tuple[ScheduledSequence, ...]
    rows: list[int]
    tokens: Download
    logprobs: Download | None

    def wait(self) -> StepResult:
        """See `LaunchedStep.wait`."""
        logprobs = None if self.logprobs is None else self.logprobs.wait().numpy()
        tokens = self.tokens.wait().numpy()
        return StepResult(*self.sampler.read(tokens, self.items, self.rows, logprobs))


class TritonModelRunner:
    """Implements `ModelRunner`. Owned by the engine thread."""

    depth = 2

    def __init__(
        self,
        model: CausalModel,
        cache: KVCache,
        *,
        num_heads: int,
        num_slots: int,
        max_model_len: int,
        max_tokens: int,
        eos_token_ids: frozenset[int],
        vocab_size: int,
        uses_graphs: bool = True,
    ) -> None:
        """For up to `num_slots` running requests of up to `max_model_len` tokens each, and
        `max_tokens` tokens a step. `num_heads`: query heads of a layer."""
        self._model = model
        self._cache = cache
        device = model.device
        self._fused = FusedDecoder(model, cache) if can_fuse(model) else None
        max_blocks = -(-max_model_len // cache.block_size) + 1
        self._slots = RequestSlots(num_slots, max_blocks)
        self._tile_size = prefill_tile_size(cache.head_dim, model.dtype, cache.block_size, device)
        self._shapes = StepShapes(max(MIN_ROWS, num_slots), max_tokens, self._tile_size)
        self._graphs = GraphPool(self._run, self._clear)
        self._uses_graphs = uses_graphs and device.type == "cuda" and is_capturable(model)
        max_rows = self._shapes.max_rows
        self._max_tokens = max(max_tokens, max_rows)

        def ints(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        self._tables = ints(num_slots + 1, max_blocks)
        self._last_tokens = ints(num_slots + 1)
        # Three values a row, four for each tile and at most four for each sample. A captured shape
        # has no more than max_rows single rows and max_tokens of chunks.
        num_values = 3 * (self._max_tokens + max_rows) + 4 * self._max_tokens
        num_values += 8 * self._shapes.max_samples + _NUM_ARRAYS * ALIGNMENT
        self._inputs = ints(num_values)
        self._input_staging = Staging(num_values, device)
        self._entries = ints(2 * MAX_ENTRIES)
        self._entry_staging = Staging(2 * MAX_ENTRIES, device)
        self._work = DecodeWork(
            max_rows,
            num_heads=num_heads,
            num_kv_heads=cache.num_kv_heads,
            head_dim=cache.head_dim,
            block_size=cache.block_size,
            device=device,
            cache_dtype=cache.dtype,
        )
        self._sampler = DeviceSampler(
            vocab_size=vocab_size,
            num_slots=num_slots,
            max_rows=self._shapes.max_samples,
            device=device,
            eos_token_ids=eos_token_ids,
        )
        self._sampled = SampledRows(self._shapes.max_samples, device)
        self._padding_slot = num_slots

    @torch.inference_mode()
    def measure_step(self) -> int:
        """Bytes that the largest step takes while it runs, found by running one on padding rows;
        0 on a CPU. The cache need not have its memory yet."""
        if self._model.device.type == "cpu":
            return 0
        self._compile()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        shape = StepShape(0, self._max_tokens, 1, self._shapes.max_samples)
        self._clear(shape)
        self._run(shape)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    @torch.inference_mode()
    def measure_graphs(self) -> int:
        """Bytes that the graphs of all shapes will take, judged by three of them; 0 where none
        are captured. The cache need not have its memory yet."""
        if not self._uses_graphs:
            return 0
        first, later = self._shapes.at_start(), self._shapes.later()
        largest = max((*first, *later), key=lambda shape: shape.num_rows)
        trial = GraphPool(self._run, self._clear)
        free = [torch.cuda.mem_get_info()[0]]
        for shape in (largest, *first[-2:]):
            trial.capture([shape])
            free.append(torch.cuda.mem_get_info()[0])
        each = max(0, free[1] - free[3]) // 2
        return free[0] - free[1] + each * (len(first) + len(later) - 1)

    def _compile(self) -> None:
        """Compiles the kernels of all kinds of steps side by side. Not for a model that looks its
        embeddings up by torch, with token ids that a dry run does not have."""
        if self._fused is None:
            return
        shapes = [StepShape(0, self._max_tokens, 1, 1), *self._shapes.at_start()]

        def dry_run() -> None:
            for shape in shapes:
                self._clear(shape)
                self._run(shape)

        began_s = time.monotonic()
        count = compile_ahead(dry_run)
        logger.info("Compiled %d kernels in %.1f s.", count, time.monotonic() - began_s)

    @torch.inference_mode()
    def prepare(self) -> None:
        """Makes ready what the first requests need: kernels, and the first graphs. The cache has
        its memory."""
        if self._uses_graphs:
            self._graphs.capture(self._shapes.at_start())
            self._graphs.put_off(self._shapes.later())

    @torch.inference_mode()
    def launch(self, plan: SchedulerOutput) -> LaunchedStep:
        """See `ModelRunner.launch`."""
        for sequence in plan.preempted:
            self.forget(sequence.request_id)
        self._cache.copy_blocks(plan.copies)
        sequences = [item.sequence for item in plan.scheduled]
        slots = self._slots.enter(sequences, self._sampler.enter)
        self._upload_tables()
        self._sampler.upload()
        rows = lay_out(plan.scheduled, slots, self._shapes.max_rows)
        items = tuple(item for item in plan.scheduled if item.samples)
        tiles = self._tiles(rows.chunks)
        exact = StepShape(
            rows.num_single,
            rows.num_rows - rows.num_single,
            len(tiles),
            max(1, len(items)) if rows.chunks else rows.num_single,
        )
        if self._uses_graphs and not self._graphs.is_complete:
            best = self._shapes.best(exact, len(rows.chunks))
            if best not in self._graphs.captured:
                self._graphs.miss(best)
        shape = self._shapes.choose(exact, len(rows.chunks), self._graphs.captured)
        self._send(shape, rows, tiles)
        self._graphs.launch(shape)
        # Without chunks every row has its place among the sampled ones.
        sampled_rows = list(range(len(items))) if rows.chunks else rows.sample_rows.tolist()
        if not items:
            return DoneStep(StepResult([]))
        count = max(sampled_rows) + 1
        asks = self._sampler.may_want_logprobs and wants_logprobs(items)
        return _RunningStep(
            self._sampler,
            items,
            sampled_rows,
            Download(self._sampled.tokens[:count]),
            Download(self._sampled.logprobs[:count]) if asks else None,
        )

    def forget(self, request_id: RequestId) -> None:
        """See `ModelRunner.forget`."""
        slot = self._slots.leave(request_id)
        if slot is not None:
            self._sampler.leave(slot)

    @torch.inference_mode()
    def idle(self) -> bool:
        """Captures one more graph."""
        return self._graphs.capture_one()

    def _upload_tables(self) -> None:
        places, blocks = self._slots.take_entries()
        for start in range(0, len(places), MAX_ENTRIES):
            part = slice(start, start + MAX_ENTRIES)
            arrays = [np.array(values[part], dtype=np.int32) for values in (places, blocks)]
            set_table_entries(self._tables, *self._entry_staging.upload(arrays, self._entries))

    def _tiles(self, chunks: tuple[Chunk, ...]) -> NDArray[np.int32]:
        if not chunks:
            return np.zeros((0, 4), dtype=np.int32)
        first_rows, num_rows, slots, positions = zip(*chunks, strict=True)
        return build_tiles(first_rows, num_rows, positions, slots, self._tile_size)

    def _clear(self, shape: StepShape) -> None:
        """Sends a step that changes nothing."""
        nothing = np.zeros(0, dtype=np.int32)
        self._send(shape, StepRows(nothing, nothing, nothing, nothing, 0, ()), self._tiles(()))

    def _send(self, shape: StepShape, rows: StepRows, tiles: NDArray[np.int32]) -> None:
        """Uploads what `_run` reads: a step padded to `shape`."""
        single, chunk_end = rows.num_single, shape.num_single + rows.num_rows - rows.num_single
        values = np.zeros((3, aligned(shape.num_rows)), dtype=np.int32)
        values[0] = self._padding_slot
        for target, source in zip(
            values, (rows.slots, rows.positions, rows.token_ids), strict=True
        ):
            target[:single] = source[:single]
            target[shape.num_single : chunk_end] = source[single:]
        num_samples = len(rows.sample_rows)
        # How far the rows of chunks lie behind their places in `rows`.
        shift = shape.num_single - single
        sampled = rows.sample_rows + shift * (rows.sample_rows >= single)
        if shape.num_chunk_rows == 0:
            samples = np.zeros((1, aligned(shape.num_samples)), dtype=np.int32)
            samples[0, sampled] = _SAMPLES
            self._input_staging.upload([values.ravel(), samples.ravel()], self._inputs)
            return
        samples = np.zeros((4, aligned(shape.num_samples)), dtype=np.int32)
        samples[1] = self._padding_slot
        samples[0, :num_samples] = sampled
        samples[1:3, :num_samples] = values[:2, sampled]
        samples[3, :num_samples] = _SAMPLES
        padded_tiles = np.zeros((shape.num_tiles, 4), dtype=np.int32)
        padded_tiles[: len(tiles)] = tiles
        padded_tiles[: len(tiles), 0] += shift
        arrays = [values.ravel(), samples.ravel(), padded_tiles.ravel()]
        self._input_staging.upload(arrays, self._inputs)

    def _run(self, shape: StepShape) -> None:
        """All that is launched for a step of `shape` on what was sent: what a graph holds."""
        width, num_rows = aligned(shape.num_rows), shape.num_rows
        single = shape.num_single
        slots, positions, token_ids = self._inputs[: 3 * width].view(3, width)[:, :num_rows]
        rest = self._inputs[3 * width :]
        width = aligned(shape.num_samples)
        inputs = row_inputs(
            slots,
            positions,
            token_ids,
            self._tables,
            self._last_tokens,
            block_size=self._cache.block_size,
        )
        context_lens = inputs.context_lens[:single]
        if single:
            self._work.plan(context_lens)
        if shape.num_chunk_rows == 0:
            layout = PagedLayout(inputs.cache_slots, self._tables, single, slots, context_lens)
            hidden = self._forward(inputs, layout, None)
            samples = rest[:single]
        else:
            tiles = rest[4 * width : 4 * width + 4 * shape.num_tiles].view(-1, 4)
            layout = PagedLayout(
                inputs.cache_slots, self._tables, single, slots[:single], context_lens, tiles
            )
            sampled = rest[: 4 * width].view(4, width)[:, : shape.num_samples]
            rows, slots, positions, samples = sampled
            hidden = self._forward(inputs, layout, rows)
        logits = self._compute_logits(hidden)
        self._sampler.launch(logits, slots, positions, samples, self._last_tokens, self._sampled)

    def _forward(self, rows: RowInputs, layout: PagedLayout, wanted: Tensor | None) -> Tensor:
        """Hidden states of all `rows`, or of those that are `wanted`."""
        attention = PagedAttention(self._cache, layout, self._work)
        if self._fused is not None:
            return self._fused.forward(rows, attention, wanted)
        hidden = self._model.forward(rows.input_ids.long(), rows.positions.long(), attention)
        return hidden if wanted is None else hidden.index_select(0, wanted)

    def _compute_logits(self, hidden: Tensor) -> Tensor:
        if self._fused is not None:
            return self._fused.compute_logits(hidden)
        return self._model.compute_logits(hidden)


def is_capturable(model: CausalModel) -> bool:
    """Whether a step of the model has no part that waits for values on the host: experts do, and
    of models that are not our own nothing is known."""
    return isinstance(model, Decoder) and model.config.experts is None
