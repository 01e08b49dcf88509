"""Builds the parts of an engine: a real one around a model, or the same around a script."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.config import EngineConfig, ResolvedConfig
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

DEFAULT_SCRIPTED_MODEL_LEN = 8192
DEFAULT_SCRIPTED_CACHE_TOKENS = 65_536


@dataclass(frozen=True, slots=True)
class Assembly:
    """What the engine thread runs and what the loop may read of it."""

    core: EngineCore
    tokenizer: Tokenizer
    model: ModelInfo
    config: ResolvedConfig


def assemble_scripted(config: EngineConfig, script: Script) -> Assembly:
    """An engine that plays `script`."""
    config = config.resolved_for("cpu")
    tokenizer = ByteTokenizer()
    max_model_len = config.max_model_len or DEFAULT_SCRIPTED_MODEL_LEN
    num_tokens = config.kv_cache_tokens or max(max_model_len, DEFAULT_SCRIPTED_CACHE_TOKENS)
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

    from engine.execution.runner_choice import build_runner
    from engine.models.registry import choose_device, load_model

    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    # Before the weights are read: what does not fit the device is refused at once.
    is_cuda = choose_device(config.device).type == "cuda"
    config = config.resolved_for("cuda" if is_cuda else "cpu")
    try:
        loaded = load_model(config, on_progress)
    except torch.OutOfMemoryError as error:
        raise ModelLoadError(f"The model's weights do not fit the GPU's memory: {error}") from error
    model = loaded.config
    max_model_len = model.max_model_len(config.max_model_len)
    runner, num_blocks, bytes_per_token = build_runner(loaded, config, max_model_len)
    return _assemble(
        config,
        runner if wrap_runner is None else wrap_runner(runner),
        loaded.tokenizer,
        max_model_len=max_model_len,
        num_blocks=num_blocks,
        architecture=model.architecture,
        dtype="packed" if loaded.packing else str(loaded.model.dtype).removeprefix("torch."),
        device=loaded.model.device.type,
        vocab_size=model.vocab_size,
        kv_cache_bytes=num_blocks * config.block_size * bytes_per_token,
        gpu_bytes=torch.cuda.memory_reserved() if is_cuda else 0,
        sampling_defaults=loaded.sampling_defaults,
        drafter=_drafter(config, runner),
    )


def _drafter(config: EngineConfig, runner: ModelRunner) -> Drafter | None:
    # Guesses need to know the last token, which with steps in flight nobody does: on a GPU a step
    # that waits for it costs more than most guesses bring.
    if config.speculation == "off" or runner.depth > 1:
        return None
    return PromptLookupDrafter(
        max_draft_tokens=config.max_draft_tokens, max_batch=config.speculation_max_batch
    )


def _assemble(
    config: ResolvedConfig,
    runner: ModelRunner,
    tokenizer: Tokenizer,
    *,
    max_model_len: int,
    num_blocks: int,
    architecture: str,
    dtype: str,
    device: str,
    vocab_size: int,
    kv_cache_bytes: int = 0,
    gpu_bytes: int = 0,
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
        kv_cache_bytes=kv_cache_bytes,
        gpu_bytes=gpu_bytes,
        sampling_defaults=sampling_defaults or {},
        is_fallback=config.is_fallback,
    )
    return Assembly(core, tokenizer, info, config)
