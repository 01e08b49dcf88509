"""Builds the parts of an engine: a real one around a model, or the same around a script."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.core import EngineCore
from engine.errors import ModelLoadError
from engine.execution.runner import ModelRunner
from engine.kv.block_allocator import BlockAllocator
from engine.scheduling.drafter import Drafter
from engine.scheduling.scheduler import SchedulerLimits
from engine.scripted import Script, ScriptedRunner
from engine.speculation.prompt_lookup import PromptLookupDrafter
from engine.text.byte_tokenizer import ByteTokenizer
from engine.text.protocol import Tokenizer
from engine.types import LoadProgress, ModelInfo

if TYPE_CHECKING:
    from engine.kernels.native.library import NativeEngine
    from engine.kv.kv_cache import KVCache
    from engine.models.packing import Packing

DEFAULT_SCRIPTED_MODEL_LEN = 8192
DEFAULT_KV_CACHE_TOKENS = 65_536
MAX_MEMORY_SHARE = 0.25
"""Of the memory that is available at start, what the KV cache takes at most by default."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """What the engine thread runs and what the loop may read of it."""

    core: EngineCore
    tokenizer: Tokenizer
    model: ModelInfo


def assemble_scripted(config: EngineConfig, script: Script) -> Assembly:
    """An engine that plays `script`."""
    tokenizer = ByteTokenizer()
    max_model_len = config.max_model_len or DEFAULT_SCRIPTED_MODEL_LEN
    num_tokens = config.kv_cache_tokens or max(max_model_len, DEFAULT_KV_CACHE_TOKENS)
    return _assemble(
        config,
        ScriptedRunner(script, tokenizer),
        tokenizer,
        max_model_len=max_model_len,
        num_blocks=-(-num_tokens // config.block_size),
        architecture="scripted",
        dtype="none",
        device="none",
        vocab_size=tokenizer.vocab_size,
    )


def assemble_model(
    config: EngineConfig,
    on_progress: LoadProgress | None,
    *,
    wrap_runner: Callable[[ModelRunner], ModelRunner] | None = None,
) -> Assembly:
    """An engine around the model that `config` names. Imports torch. Raises ModelLoadError.

    `wrap_runner` gets the runner that was chosen and returns the one to use: for measurements."""
    # A step is some hundred small parallel regions. Where other programs share the cores, threads
    # that spin long at each region's end keep those from running that they wait for: measured, a
    # step took twenty times as long, while a short spin costs an idle machine a tenth. GNU OpenMP
    # reads this when torch loads it.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")

    import torch

    from engine.execution.model_runner import TorchModelRunner
    from engine.execution.native_runner import NativeModelRunner
    from engine.execution.native_step import NativeDecoderStep, native_decoder
    from engine.execution.sampler import Sampler
    from engine.kv.kv_cache import KVCache
    from engine.models.registry import load_model

    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    loaded = load_model(config, on_progress)
    model, device = loaded.config, loaded.model.device
    max_model_len = model.max_model_len(config.max_model_len)
    packing = loaded.packing
    decoder = native_decoder(loaded.model, packing)
    cache_dtype = loaded.model.dtype if decoder is None else torch.float16
    num_blocks = _num_blocks(
        config,
        max_model_len,
        KVCache.bytes_per_token(
            num_layers=model.num_layers,
            num_kv_heads=model.num_kv_heads,
            head_dim=model.head_dim,
            dtype=cache_dtype,
        ),
        (lambda: torch.cuda.mem_get_info()[0]) if device.type == "cuda" else _available_bytes,
    )
    cache = KVCache(
        num_layers=model.num_layers,
        num_blocks=num_blocks,
        block_size=config.block_size,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        dtype=cache_dtype,
        device=device,
    )
    runner: ModelRunner
    if packing is not None and decoder is not None:
        step = NativeDecoderStep(decoder, packing.engine, cache)
        runner = NativeModelRunner(step, cache, Sampler(loaded.tokenizer.eos_token_ids))
    else:
        native = _native_engine(cache, packing)
        runner = TorchModelRunner(loaded.model, cache, loaded.tokenizer.eos_token_ids, native)
    return _assemble(
        config,
        runner if wrap_runner is None else wrap_runner(runner),
        loaded.tokenizer,
        max_model_len=max_model_len,
        num_blocks=num_blocks,
        architecture=model.architecture,
        dtype="packed" if packing else str(loaded.model.dtype).removeprefix("torch."),
        device=device.type,
        vocab_size=model.vocab_size,
        sampling_defaults=loaded.sampling_defaults,
        drafter=_drafter(config),
    )


def _native_engine(cache: KVCache, packing: Packing | None) -> NativeEngine | None:
    """The native kernels for attention under torch, where they can serve it."""
    import torch

    from engine.kernels.native.attention import can_attend
    from engine.kernels.native.library import NativeEngine, load_library

    library = load_library()
    if library is None or not can_attend(library, cache):
        return None
    if packing is not None:
        return packing.engine
    return NativeEngine(library, torch.get_num_threads())


def _drafter(config: EngineConfig) -> Drafter | None:
    if config.speculation == "off":
        return None
    return PromptLookupDrafter(
        max_draft_tokens=config.max_draft_tokens, max_batch=config.speculation_max_batch
    )


def _num_blocks(
    config: EngineConfig, max_model_len: int, bytes_per_token: int, available: Callable[[], int]
) -> int:
    if config.kv_cache_tokens is not None:
        return -(-config.kv_cache_tokens // config.block_size)
    affordable = int(available() * MAX_MEMORY_SHARE) // bytes_per_token
    wanted = max(max_model_len, min(DEFAULT_KV_CACHE_TOKENS, config.max_num_seqs * max_model_len))
    num_blocks = min(wanted, affordable) // config.block_size
    if num_blocks == 0:
        raise ModelLoadError(
            f"a block of {config.block_size} tokens needs "
            f"{config.block_size * bytes_per_token} bytes, and "
            f"{affordable * bytes_per_token} bytes may be used for the KV cache"
        )
    return num_blocks


def _available_bytes() -> int:
    """Memory that Linux can give without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ModelLoadError(
        "This system does not say how much memory is available: set --kv-cache-tokens."
    )


def _assemble(
    config: EngineConfig,
    runner: ModelRunner,
    tokenizer: Tokenizer,
    *,
    max_model_len: int,
    num_blocks: int,
    architecture: str,
    dtype: str,
    device: str,
    vocab_size: int,
    sampling_defaults: Mapping[str, float] | None = None,
    drafter: Drafter | None = None,
) -> Assembly:
    allocator = BlockAllocator(
        num_blocks,
        config.block_size,
        model=config.served_name,
        enable_prefix_cache=config.enable_prefix_cache,
    )
    limits = SchedulerLimits(
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        step_time_target_s=config.step_time_target_s,
        prefill_step_time_target_s=config.prefill_step_time_target_s,
        min_chunk_tokens=config.min_chunk_tokens,
        max_prefill_gap_steps=config.max_prefill_gap_steps,
    )
    core = EngineCore(
        runner,
        tokenizer,
        allocator,
        limits,
        max_model_len=max_model_len,
        clock=time.monotonic,
        drafter=drafter,
    )
    info = ModelInfo(
        name=config.served_name,
        max_model_len=max_model_len,
        vocab_size=vocab_size,
        architecture=architecture,
        dtype=dtype,
        device=device,
        kv_cache_tokens=allocator.capacity_tokens,
        sampling_defaults=sampling_defaults or {},
        is_fallback=config.is_fallback,
    )
    return Assembly(core, tokenizer, info)
