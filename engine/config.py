"""Limits and choices of the engine: frozen, checked once, never changed after construction."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from engine.errors import InvalidRequestError

DeviceType = Literal["cpu", "cuda"]

DEVICE_DEFAULTS: dict[str, dict[DeviceType, Any]] = {
    # A decode step of a CPU is long already with 32 sequences; a GPU reads its weights once for
    # hundreds, and below some 200 rows the reading, not the arithmetic, is what a step takes.
    "block_size": {"cpu": 16, "cuda": 64},
    "max_num_seqs": {"cpu": 32, "cuda": 256},
    "max_num_batched_tokens": {"cpu": 512, "cuda": 8192},
    "step_time_target_s": {"cpu": 0.25, "cuda": 0.05},
    "prefill_step_time_target_s": {"cpu": 1.0, "cuda": 0.25},
    "min_chunk_tokens": {"cpu": 32, "cuda": 256},
}
"""What the fields that may be None stand for, by the kind of device that runs the model."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything that `create_engine` may be told. Values found at start (the number of
    blocks, the dtype chosen for `auto`) are in `ModelInfo`, not here; the fields that are None by
    default and depend on the device are filled by `resolved_for`.

    Raises InvalidRequestError, naming the field and its range."""

    model: Path
    """A local folder (config.json, tokenizer, safetensors) or a .gguf file."""
    served_name: str = "model"
    is_fallback: bool = False
    load_format: Literal["auto", "safetensors", "gguf", "dummy"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    weights: Literal["auto", "float", "q8", "q4"] = "auto"
    """How weights are kept. float: as `dtype`. q8, q4: rounded to 8 or 4 bits, a scale for each 32
    of them (CPU with native kernels only). auto: on a CPU the codes of a quantized GGUF file as
    they are, unless a dtype is asked for; else float."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    cache_dir: Path | None = None
    """Where a converted copy of a GGUF file is kept. None: convert at each start."""
    max_model_len: int | None = None
    """Prompt + answer in tokens. None: the model's own window, at most 8192."""
    quantization: Literal["none", "fp8"] = "none"
    """fp8: the layers' projections are rounded to 8-bit floats at start (GPU only)."""
    kv_cache_tokens: int | None = None
    """Capacity of the KV cache in tokens. None: from the memory that is free."""
    kv_cache_dtype: Literal["auto", "fp8"] = "auto"
    """auto: the dtype of the weights. fp8: 8-bit floats, half the memory (GPU only)."""
    gpu_memory_utilization: float = 0.9
    """Share of the GPU's memory that weights, graphs, activations and the KV cache may take
    together. What other programs hold there counts, too."""
    execution: Literal["auto", "torch", "triton"] = "auto"
    """Which runner computes the steps on a GPU. auto: the fused kernels where Triton is installed
    and they can serve the model's attention, else torch's own operations."""
    cuda_graphs: Literal["auto", "off"] = "auto"
    """auto: steps are recorded once per shape and replayed as CUDA graphs where the runner can;
    those with thousands of prompt tokens are launched as they are. off: every kernel is launched
    by itself: slower, for finding faults."""
    block_size: int | None = None
    """Tokens of a KV cache block. None: 16 on a CPU, 64 on a GPU."""
    max_num_seqs: int | None = None
    """Sequences that may run at once. None: 32 on a CPU, 256 on a GPU."""
    max_num_batched_tokens: int | None = None
    """Token budget of one step. None: 512 on a CPU, 8192 on a GPU."""
    max_queued_requests: int = 256
    step_time_target_s: float | None = None
    """Prefill chunks are cut so that a step with running decodes stays near this. None: 0.25 on a
    CPU, 0.05 on a GPU."""
    prefill_step_time_target_s: float | None = None
    """The same where nothing decodes: a cancel or a new request waits for a step to end. None:
    1.0 on a CPU, 0.25 on a GPU."""
    min_chunk_tokens: int | None = None
    """A prefill chunk is not made smaller than this, unless its prompt ends there. None: 32 on a
    CPU; 256 on a GPU, where fewer tokens take no less time."""
    max_prefill_gap_steps: int = 4
    """With decodes running, a waiting prefill gets a chunk at least every so many steps."""
    enable_prefix_cache: bool = True
    speculation: Literal["auto", "off"] = "auto"
    """auto: on a CPU, steps check guesses from the sequence's own text where that pays; changes no
    answer. With the fused kernels of a GPU there are no guesses: the next step is launched before
    the tokens are known that it would guess from."""
    max_draft_tokens: int = 8
    """Guesses that one step checks for a sequence."""
    speculation_max_batch: int = 4
    """With more sequences decoding there are no guesses: their own rows fill the machine."""
    num_threads: int | None = None
    """CPU threads for torch. None: the physical cores."""
    max_pending_chars: int = 1_000_000
    """Text that may wait for a reader before its request ends as `slow_client`."""

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InvalidRequestError(
                    f"{name} must be from {low} to {high}, not {value}", param=name
                )
        tokens, sequences = self.max_num_batched_tokens, self.max_num_seqs
        if tokens is not None and sequences is not None and tokens <= sequences:
            # Every running sequence decodes in every step, and one prefill must advance too.
            raise InvalidRequestError(
                f"max_num_batched_tokens ({tokens}) must be more than max_num_seqs ({sequences})",
                param="max_num_batched_tokens",
            )

    def resolved_for(self, device_type: DeviceType) -> ResolvedConfig:
        """This with the values of `device_type` for what was left to it; what is resolved already
        stays. Raises InvalidRequestError where the values do not go together, or where one is for
        GPUs and the device is none."""
        for name in ("quantization", "kv_cache_dtype"):
            # Under Triton's interpreter the GPU's kernels run on a CPU, for tests.
            if getattr(self, name) == "fp8" and device_type == "cpu" and self.execution != "triton":
                raise InvalidRequestError(f"{name} fp8 is for a GPU, not a CPU", param=name)
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        chosen = {
            name: values[device_type]
            for name, values in DEVICE_DEFAULTS.items()
            if given[name] is None
        }
        return ResolvedConfig(**(given | chosen))


@dataclass(frozen=True, slots=True)
class ResolvedConfig(EngineConfig):
    """A configuration for one kind of device (`EngineConfig.resolved_for`): nothing is left to
    it. The defaults here are never used, they only keep the order of the fields."""

    block_size: int = 16
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 512
    step_time_target_s: float = 0.25
    prefill_step_time_target_s: float = 1.0
    min_chunk_tokens: int = 32

    @property
    def max_requests(self) -> int:
        """How many requests may run and wait at once."""
        return self.max_num_seqs + self.max_queued_requests


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("block_size", 1, 256),
    ("max_num_seqs", 1, 4096),
    ("max_num_batched_tokens", 1, 1_000_000),
    ("max_queued_requests", 0, 1_000_000),
    ("min_chunk_tokens", 1, 1_000_000),
    ("max_prefill_gap_steps", 1, 1000),
    ("max_draft_tokens", 1, 64),
    ("speculation_max_batch", 1, 4096),
    ("max_pending_chars", 1, 1 << 30),
    ("max_model_len", 1, 1 << 40),
    ("kv_cache_tokens", 1, 1 << 40),
    ("num_threads", 1, 1 << 40),
    ("step_time_target_s", 0.001, 60.0),
    ("prefill_step_time_target_s", 0.001, 60.0),
    ("gpu_memory_utilization", 0.01, 1.0),
)
"""The least and the largest value of each number; None passes."""
