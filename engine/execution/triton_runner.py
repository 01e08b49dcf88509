"""`TritonModelRunner`: steps on a GPU, two in flight.

A request's block table, its last token and its sampling parameters live on the GPU, in its slot.
A step sends what the GPU cannot know: which slots, at which positions. A step of single rows
(decodes, and prompt chunks of a few tokens) is one captured graph, sampling and all; one with
longer chunks is launched kernel by kernel. What was sampled goes to the host while the next step
runs, which takes it from the slots.
"""

from __future__ import annotations

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

MIN_ROWS = 64
"""The largest bucket has at least so many rows, so that short prompt chunks fit in beside decodes
also where few sequences may run."""

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
        self._graphs = GraphPool(
            self._run_single_rows,
            self._send_padding,
            max(MIN_ROWS, num_slots),
            is_capturing=uses_graphs and device.type == "cuda" and is_capturable(model),
        )
        max_rows = self._graphs.max_rows
        self._max_tokens = max(max_tokens, max_rows)

        def ints(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        self._tables = ints(num_slots + 1, max_blocks)
        self._last_tokens = ints(num_slots + 1)
        # Three values a row, four for each row that samples, and four for each tile, of which
        # there are no more than rows.
        num_values = 11 * self._max_tokens + _NUM_ARRAYS * ALIGNMENT
        self._inputs = ints(num_values)
        self._input_staging = Staging(num_values, device)
        num_values = 2 * aligned(num_slots * max_blocks)
        self._entries = ints(num_values)
        self._entry_staging = Staging(num_values, device)
        self._work = DecodeWork(
            max_rows,
            num_heads=num_heads,
            num_kv_heads=cache.num_kv_heads,
            head_dim=cache.head_dim,
            block_size=cache.block_size,
            device=device,
            cache_dtype=cache.dtype,
        )
        self._tile_size = prefill_tile_size(cache.head_dim, model.dtype, cache.block_size, device)
        self._sampler = DeviceSampler(
            vocab_size=vocab_size,
            num_slots=num_slots,
            max_rows=max_rows,
            device=device,
            eos_token_ids=eos_token_ids,
        )
        self._sampled = SampledRows(max_rows, device)
        self._padding_slot = num_slots

    @torch.inference_mode()
    def measure_step(self) -> int:
        """Bytes that the largest step takes while it runs, found by running one on padding rows;
        0 on a CPU. The cache need not have its memory yet."""
        if self._model.device.type == "cpu":
            return 0
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        self._run_padding(self._max_tokens, self._graphs.max_rows)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    @torch.inference_mode()
    def prepare(self) -> None:
        """Makes ready what the first requests need: kernels, and the first graphs. The cache has
        its memory."""
        self._run_padding(self._tile_size, 1)
        self._graphs.start()

    def _run_padding(self, num_rows: int, num_samples: int) -> None:
        """A step with a chunk, all rows of which are padding."""
        nothing = np.zeros(num_rows, dtype=np.int32)
        rows = StepRows(
            nothing + self._padding_slot,
            nothing,
            nothing,
            nothing[:num_samples],
            0,
            (Chunk(0, min(num_rows, self._cache.block_size), self._padding_slot, 0),),
        )
        self._launch_chunks(rows)

    @torch.inference_mode()
    def launch(self, plan: SchedulerOutput) -> LaunchedStep:
        """See `ModelRunner.launch`."""
        for sequence in plan.preempted:
            self.forget(sequence.request_id)
        self._cache.copy_blocks(plan.copies)
        slots = [self._slots.enter(item.sequence, self._sampler.enter) for item in plan.scheduled]
        self._upload_tables()
        self._sampler.upload()
        rows = lay_out(plan.scheduled, slots, self._graphs.max_rows)
        items = tuple(item for item in plan.scheduled if item.samples)
        if not rows.chunks:
            self._launch_single_rows(rows)
            sampled_rows = rows.sample_rows.tolist()
        else:
            self._launch_chunks(rows)
            sampled_rows = list(range(len(items)))
        if not items:
            return DoneStep(StepResult([]))
        count = max(sampled_rows) + 1
        return _RunningStep(
            self._sampler,
            items,
            sampled_rows,
            Download(self._sampled.tokens[:count]),
            Download(self._sampled.logprobs[:count]) if wants_logprobs(items) else None,
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
        if not places:
            return
        arrays = [np.array(values, dtype=np.int32) for values in (places, blocks)]
        set_table_entries(self._tables, *self._entry_staging.upload(arrays, self._entries))

    def _launch_single_rows(self, rows: StepRows) -> None:
        """A step of rows that attend each on its own, as one graph."""
        count = rows.num_rows
        bucket = self._graphs.bucket_for(count)
        values = self._padding_rows(bucket)
        values[0, :count] = rows.slots
        values[1, :count] = rows.positions
        values[2, :count] = rows.token_ids
        values[3, rows.sample_rows] = _SAMPLES
        self._input_staging.upload([values.ravel()], self._inputs)
        self._graphs.launch(bucket)

    def _padding_rows(self, num_rows: int) -> NDArray[np.int32]:
        """Slots, positions, token ids and what to sample, one below the other, of rows that do
        nothing."""
        values = np.zeros((4, aligned(num_rows)), dtype=np.int32)
        values[0] = self._padding_slot
        return values

    def _send_padding(self, num_rows: int) -> None:
        self._input_staging.upload([self._padding_rows(num_rows).ravel()], self._inputs)

    def _run_single_rows(self, num_rows: int) -> None:
        """All that is launched for `num_rows` rows in `_inputs`: what a graph holds."""
        width = aligned(num_rows)
        values = self._inputs[: 4 * width].view(4, width)[:, :num_rows]
        slots, positions, token_ids, samples = values
        rows = self._row_inputs(slots, positions, token_ids)
        self._work.plan(rows.context_lens)
        layout = PagedLayout(rows.cache_slots, self._tables, num_rows, slots, rows.context_lens)
        logits = self._compute_logits(self._forward(rows, layout))
        self._sampler.launch(
            logits, slots, positions, samples, token_ids, self._last_tokens, self._sampled
        )

    def _launch_chunks(self, rows: StepRows) -> None:
        """A step with longer chunks of prompts."""
        num_single, num_samples, chunks = rows.num_single, len(rows.sample_rows), rows.chunks
        tiles = build_tiles(
            np.array([chunk.first_row for chunk in chunks], dtype=np.int32),
            np.array([chunk.num_rows for chunk in chunks], dtype=np.int32),
            np.array([chunk.first_position for chunk in chunks], dtype=np.int32),
            np.array([chunk.slot for chunk in chunks], dtype=np.int32),
            self._tile_size,
        )
        sampling = rows.sample_rows
        arrays = [rows.slots, rows.positions, rows.token_ids, tiles.ravel()]
        arrays += [sampling, rows.slots[sampling], rows.positions[sampling]]
        arrays += [np.full(num_samples, _SAMPLES, dtype=np.int32), rows.token_ids[sampling]]
        parts = self._input_staging.upload(arrays, self._inputs)
        inputs = self._row_inputs(*parts[:3])
        context_lens = inputs.context_lens[:num_single]
        if num_single:
            self._work.plan(context_lens)
        layout = PagedLayout(
            inputs.cache_slots,
            self._tables,
            num_single,
            parts[0][:num_single],
            context_lens,
            parts[3].view(-1, 4),
        )
        hidden = self._forward(inputs, layout)
        if num_samples:
            logits = self._compute_logits(hidden.index_select(0, parts[4]))
            self._sampler.launch(logits, *parts[5:9], self._last_tokens, self._sampled)

    def _row_inputs(self, slots: Tensor, positions: Tensor, token_ids: Tensor) -> RowInputs:
        block_size = self._cache.block_size
        return row_inputs(
            slots, positions, token_ids, self._tables, self._last_tokens, block_size=block_size
        )

    def _forward(self, rows: RowInputs, layout: PagedLayout) -> Tensor:
        attention = PagedAttention(self._cache, layout, self._work)
        if self._fused is not None:
            return self._fused.forward(rows, attention)
        return self._model.forward(rows.input_ids.long(), rows.positions.long(), attention)

    def _compute_logits(self, hidden: Tensor) -> Tensor:
        if self._fused is not None:
            return self._fused.compute_logits(hidden)
        return self._model.compute_logits(hidden)


def is_capturable(model: CausalModel) -> bool:
    """Whether a step of the model has no part that waits for values on the host: experts do, and
    of models that are not our own nothing is known."""
    return isinstance(model, Decoder) and model.config.experts is None
