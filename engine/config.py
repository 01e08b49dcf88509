"""Limits and choices of the engine: frozen, checked once, never changed after construction."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything that `create_engine` may be told. Values found at start (the number of
    blocks, the dtype chosen for `auto`) are in `ModelInfo`, not here.

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
    kv_cache_tokens: int | None = None
    """Capacity of the KV cache in tokens. None: from the memory that is free."""
    block_size: int = 16
    max_num_seqs: int = 32
    """Sequences that may run at once."""
    max_num_batched_tokens: int = 512
    """Token budget of one step."""
    max_queued_requests: int = 256
    step_time_target_s: float = 0.25
    """Prefill chunks are cut so that a step with running decodes stays near this."""
    prefill_step_time_target_s: float = 1.0
    """The same where nothing decodes: a cancel or a new request waits for a step to end."""
    min_chunk_tokens: int = 32
    """A prefill chunk is not made smaller than this, unless its prompt ends there."""
    max_prefill_gap_steps: int = 4
    """With decodes running, a waiting prefill gets a chunk at least every so many steps."""
    enable_prefix_cache: bool = True
    speculation: Literal["auto", "off"] = "auto"
    """auto: steps check guesses from the sequence's own text where that pays; changes no answer."""
    max_draft_tokens: int = 8
    """Guesses that one step checks for a sequence."""
    speculation_max_batch: int = 4
    """With more sequences decoding there are no guesses: their own rows fill the machine."""
    num_threads: int | None = None
    """CPU threads for torch. None: the physical cores."""
    max_pending_chars: int = 1_000_000
    """Text that may wait for a reader before its request ends as `slow_client`."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("block_size", 1, 256),
            ("max_num_seqs", 1, 4096),
            ("max_num_batched_tokens", 1, 1_000_000),
            ("max_queued_requests", 0, 1_000_000),
            ("min_chunk_tokens", 1, 1_000_000),
            ("max_prefill_gap_steps", 1, 1000),
            ("max_draft_tokens", 1, 64),
            ("speculation_max_batch", 1, 4096),
            ("max_pending_chars", 1, 1 << 30),
        ):
            _check(name, getattr(self, name), low, high)
        for name in ("max_model_len", "kv_cache_tokens", "num_threads"):
            value = getattr(self, name)
            if value is not None:
                _check(name, value, 1, 1 << 40)
        if self.max_num_batched_tokens <= self.max_num_seqs:
            # Every running sequence decodes in every step, and one prefill must advance too.
            raise InvalidRequestError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be more than "
                f"max_num_seqs ({self.max_num_seqs})",
                param="max_num_batched_tokens",
            )
        for name in ("step_time_target_s", "prefill_step_time_target_s"):
            _check(name, getattr(self, name), 0.001, 60.0)


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidRequestError(f"{name} must be from {low} to {high}, not {value}", param=name)
