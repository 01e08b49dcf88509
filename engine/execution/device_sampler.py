"""`DeviceSampler`: logits to token ids on the GPU, inside CUDA graphs; the same tokens as
`Sampler` draws.

What a request asks for is uploaded once, when it gets a slot. A step then needs nothing from the
host, and the token of one step can be the input of the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
import triton
from torch import Tensor

from engine.errors import ModelLoadError
from engine.execution.logit_check import NOT_FINITE
from engine.execution.logit_rows import HEAD_DEPTH
from engine.execution.runner import Sample
from engine.execution.sampling_state import SlotState, slot_state
from engine.kernels.triton import sampling_layout
from engine.kernels.triton.sampling_choice import choice_kernel
from engine.kernels.triton.sampling_layout import SamplingLayout
from engine.kernels.triton.sampling_logprobs import logprobs_kernel
from engine.kernels.triton.sampling_scan import scan_kernel
from engine.kernels.triton.sampling_tiles import tiles_kernel
from engine.scheduling.scheduler_output import ScheduledSequence
from engine.scheduling.sequence import Sequence as EngineSequence
from engine.types import RequestId, SamplingParams, TokenLogprobs

Words = npt.NDArray[np.int32]


class SampledRows:
    """Static buffers on the device for what the rows of a step get.

    `tokens` int32 [max_rows]: token ids; with its bits flipped (so negative) where the row's
    logits were not finite. `logprobs` int32 [max_rows, LOGPROB_WORDS], for rows that ask."""

    __slots__ = ("logprobs", "tokens")

    def __init__(self, max_rows: int, device: torch.device) -> None:
        self.tokens = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self.logprobs = torch.zeros(
            (max_rows, sampling_layout.LOGPROB_WORDS), dtype=torch.int32, device=device
        )


def wants_logprobs(items: Sequence[ScheduledSequence]) -> bool:
    """Whether `DeviceSampler.read` needs the log probabilities too."""
    return any(item.sequence.request.params.logprobs is not None for item in items)


class DeviceSampler:
    """Owned by the engine thread; its work on the GPU goes to torch's current stream.

    Takes about `max_rows` * vocabulary * 4 + `num_slots` * vocabulary * 2 bytes of the GPU."""

    def __init__(
        self,
        *,
        vocab_size: int,
        num_slots: int,
        max_rows: int,
        device: torch.device,
        eos_token_ids: Iterable[int] = (),
        layout: SamplingLayout | None = None,
    ) -> None:
        """`num_slots` requests at once, in steps of `max_rows` rows at most. Raises ModelLoadError
        where `eos_token_ids` are more than a slot has room for."""
        self._layout = layout or SamplingLayout(vocab_size, head_depth=HEAD_DEPTH)
        self._device = device
        self._eos_token_ids = frozenset(eos_token_ids)
        room = sampling_layout.MAX_BLOCKED - SamplingParams.MAX_STOP_TOKEN_IDS
        if len(self._eos_token_ids) > room:
            raise ModelLoadError(
                f"{len(self._eos_token_ids)} tokens end the model's sequences; on a GPU at most "
                f"{room} may."
            )
        self._entered: dict[int, SlotState] = {}
        self._asking: set[int] = set()
        """Slots of requests that ask for log probabilities."""

        def make(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        sizes, floating = self._layout, torch.float32
        self._params = make(num_slots + 1, sampling_layout.NUM_PARAM_WORDS, dtype=torch.int64)
        self._counts = make(num_slots + 1, vocab_size, dtype=torch.int16)
        self._bias_ids = make(num_slots + 1, sampling_layout.MAX_BIASES)
        self._biases = make(num_slots + 1, sampling_layout.MAX_BIASES, dtype=floating)
        self._blocked_ids = make(num_slots + 1, sampling_layout.MAX_BLOCKED)
        self._forced_ids = make(num_slots + 1, sampling_layout.MAX_FORCED)
        self._adjusted = make(max_rows, vocab_size, dtype=floating)
        self._floats = make(max_rows, sizes.float_width, dtype=floating)
        self._ints = make(max_rows, sampling_layout.INT_WIDTH)
        self._list_values = make(max_rows, sizes.list_size, dtype=floating)
        self._list_ids = make(max_rows, sizes.list_size)

    def enter(self, slot: int, sequence: EngineSequence) -> None:
        """The request has `slot` from the next launch on; again after preemption. Penalties count
        the tokens that it has now, and from then on what is drawn."""
        self._entered[slot] = slot_state(sequence, self._eos_token_ids, self._layout.vocab_size)
        if sequence.request.params.logprobs is None:
            self._asking.discard(slot)
        else:
            self._asking.add(slot)

    def leave(self, slot: int) -> None:
        """The request has ended or was preempted. Launched steps may still draw for the slot."""
        self._entered.pop(slot, None)
        self._asking.discard(slot)

    @property
    def may_want_logprobs(self) -> bool:
        """Whether a request that has a slot asks for log probabilities."""
        return bool(self._asking)

    def upload(self) -> None:
        """Brings what has changed to the GPU, before the launch of a step."""
        if self._entered:
            self._upload_slots(self._entered)
            self._entered = {}

    def launch(
        self,
        logits: Tensor,
        row_slots: Tensor,
        row_positions: Tensor,
        row_samples: Tensor,
        last_tokens: Tensor,
        out: SampledRows,
    ) -> None:
        """Draws for the rows of `logits` [R, vocab] (bfloat16, float16 or float32; read only; each
        row contiguous). Can be captured. The other tensors are int32.

        `row_slots`, `row_positions` [R]: a row's slot, and the position of its token; the drawn
        token comes behind. `row_samples` [R]: 0 draws nothing; 1, for one row of a slot, draws,
        counts the token and writes it into `last_tokens` [num_slots + 1]."""
        sizes = self._layout
        num_rows, num_tiles = len(logits), sizes.num_tiles
        tile_block = triton.next_power_of_2(num_tiles)
        stride = logits.stride(0)
        scan_kernel[(num_rows, num_tiles)](
            logits,
            stride,
            self._adjusted,
            self._params,
            self._counts,
            self._bias_ids,
            self._biases,
            self._blocked_ids,
            self._forced_ids,
            row_slots,
            row_positions,
            row_samples,
            self._floats,
            self._ints,
            last_tokens,
            out.tokens,
            VOCAB=sizes.vocab_size,
            TILE=sizes.tile,
            PART=sizes.part,
            CHUNK=sizes.chunk,
            NUM_TILES=num_tiles,
            NUM_PARTS=sizes.num_parts,
            TILE_BLOCK=tile_block,
            PART_BLOCK=triton.next_power_of_2(sizes.num_parts),
            FLOAT_WIDTH=sizes.float_width,
            DEPTH=sizes.head_depth,
            num_warps=8,
            enable_fp_fusion=False,
        )
        tiles_kernel[(num_rows, num_tiles)](
            logits,
            stride,
            self._adjusted,
            self._params,
            row_slots,
            row_positions,
            row_samples,
            self._floats,
            self._ints,
            self._list_values,
            self._list_ids,
            VOCAB=sizes.vocab_size,
            TILE=sizes.tile,
            PART=sizes.part,
            CHUNK=sizes.chunk,
            LIST=sizes.list_size,
            NUM_TILES=num_tiles,
            FLOAT_WIDTH=sizes.float_width,
            DEPTH=sizes.head_depth,
            num_warps=4,
            enable_fp_fusion=False,
        )
        choice_kernel[(num_rows,)](
            logits,
            stride,
            self._adjusted,
            self._params,
            self._counts,
            self._forced_ids,
            row_slots,
            row_positions,
            row_samples,
            self._floats,
            self._ints,
            self._list_values,
            self._list_ids,
            last_tokens,
            out.tokens,
            VOCAB=sizes.vocab_size,
            TILE=sizes.tile,
            CHUNK=sizes.chunk,
            LIST=sizes.list_size,
            NUM_TILES=num_tiles,
            TILE_BLOCK=tile_block,
            FLOAT_WIDTH=sizes.float_width,
            DEPTH=sizes.head_depth,
            num_warps=4,
            enable_fp_fusion=False,
        )
        logprobs_kernel[(num_rows,)](
            logits,
            stride,
            self._params,
            row_slots,
            row_samples,
            self._floats,
            out.tokens,
            out.logprobs,
            VOCAB=sizes.vocab_size,
            TILE=sizes.tile,
            NUM_TILES=num_tiles,
            TILE_BLOCK=tile_block,
            FLOAT_WIDTH=sizes.float_width,
            num_warps=8,
            enable_fp_fusion=False,
        )

    def read(
        self,
        host_tokens: Words,
        items: Sequence[ScheduledSequence],
        rows: Sequence[int],
        host_logprobs: Words | None = None,
    ) -> tuple[list[Sample], dict[RequestId, str]]:
        """What a launch drew for `items`, which sample, and the requests that cannot go on, with a
        sentence for people. `host_tokens` and `host_logprobs` are copies of `SampledRows` (the
        latter needed where `wants_logprobs`); `rows`: the one row of each item that samples.
        A sample is one token."""
        drawn: list[int] = host_tokens.tolist()
        samples: list[Sample] = []
        failures: dict[RequestId, str] = {}
        for item, row in zip(items, rows, strict=True):
            request, token_id = item.sequence.request, drawn[row]
            if token_id < 0:
                failures[request.request_id] = NOT_FINITE
                token_id = ~token_id
            logprobs: tuple[TokenLogprobs, ...] = ()
            if request.params.logprobs is not None:
                if host_logprobs is None:
                    raise ValueError("log probabilities were asked for, and not copied")
                most = min(request.params.logprobs, self._layout.vocab_size)
                logprobs = (_logprobs(host_logprobs[row], token_id, most),)
            samples.append(Sample((token_id,), logprobs))
        return samples, failures

    def _upload_slots(self, entered: dict[int, SlotState]) -> None:
        slots = np.fromiter(entered, dtype=np.int64, count=len(entered))
        words = np.stack([state.words for state in entered.values()])
        packed = self._send(np.concatenate([slots[:, None], words], axis=1))
        self._params[packed[:, 0]] = packed[:, 1:]
        for slot, state in entered.items():
            if state.biases:
                ids, biases = zip(*state.biases, strict=True)
                self._bias_ids[slot, : len(ids)] = self._send(np.array(ids, dtype=np.int32))
                self._biases[slot, : len(ids)] = self._send(np.array(biases, dtype=np.float32))
            if state.blocked_ids:
                blocked = np.array(state.blocked_ids, dtype=np.int32)
                self._blocked_ids[slot, : len(blocked)] = self._send(blocked)
            if state.forced_ids:
                forced = np.array(state.forced_ids, dtype=np.int32)
                self._forced_ids[slot, : len(forced)] = self._send(forced)
            if state.counts is not None:
                token_ids, counts = self._send(np.stack(state.counts)).unbind()
                self._counts[slot].zero_()
                self._counts[slot, token_ids] = counts.to(torch.int16)

    def _send(self, array: npt.NDArray[np.generic]) -> Tensor:
        """A copy on the device; the host does not wait for it."""
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if self._device.type != "cuda":
            return tensor
        # Pinned memory is not given out again before the copy from it has ended.
        return tensor.pin_memory().to(self._device, non_blocking=True)


def _logprobs(words: Words, token_id: int, num_top: int) -> TokenLogprobs:
    values: list[float] = words[: 1 + num_top].view(np.float32).tolist()
    first = 1 + sampling_layout.NUM_TOP
    ids: list[int] = words[first : first + num_top].tolist()
    return TokenLogprobs(token_id, values[0], tuple(zip(ids, values[1:], strict=True)))
