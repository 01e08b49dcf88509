"""Puts a loaded model on a GPU to work: measures what a step takes, gives the KV cache the rest."""

from __future__ import annotations

import logging

import torch

from engine.config import ResolvedConfig
from engine.errors import ModelLoadError
from engine.execution.gpu_memory import MemoryPlan
from engine.execution.triton_runner import TritonModelRunner
from engine.kv.kv_cache import KVCache
from engine.models.config import ModelConfig
from engine.models.registry import LoadedModel

logger = logging.getLogger(__name__)


def build_triton_runner(
    loaded: LoadedModel, config: ResolvedConfig, max_model_len: int
) -> tuple[TritonModelRunner, int, int]:
    """A runner that is ready for its first step, the number of its cache's blocks, and the bytes
    that a token takes in it. Raises ModelLoadError when the memory is too small, with the
    numbers."""
    model, shape = loaded.model, loaded.config
    assert isinstance(shape, ModelConfig)
    device = model.device
    cache = KVCache(
        num_layers=shape.num_layers,
        num_blocks=1,  # until it is known how many fit
        block_size=config.block_size,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        dtype=torch.float8_e4m3fn if config.kv_cache_dtype == "fp8" else model.dtype,
        device=device,
    )
    bytes_per_token = KVCache.bytes_per_token(
        num_layers=shape.num_layers,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        dtype=cache.dtype,
    )
    try:
        runner = TritonModelRunner(
            model,
            cache,
            num_heads=shape.num_heads,
            num_slots=config.max_num_seqs,
            max_model_len=max_model_len,
            max_tokens=config.max_num_batched_tokens,
            eos_token_ids=frozenset(loaded.tokenizer.eos_token_ids),
            vocab_size=shape.vocab_size,
            uses_graphs=config.cuda_graphs == "auto",
        )
        step_bytes, graph_bytes = runner.measure_step(), runner.measure_graphs()
    except torch.OutOfMemoryError as error:
        raise ModelLoadError(
            f"A step of max_num_batched_tokens {config.max_num_batched_tokens} does not fit the "
            f"GPU's memory: {error}"
        ) from error
    num_blocks = _num_blocks(
        config, max_model_len, bytes_per_token, step_bytes, graph_bytes, device
    )
    try:
        cache.resize(num_blocks)
        runner.prepare()
    except torch.OutOfMemoryError as error:
        raise ModelLoadError(
            f"A KV cache of {num_blocks * config.block_size} tokens and the captured graphs do not "
            f"fit the GPU's memory: lower gpu_memory_utilization or kv_cache_tokens. {error}"
        ) from error
    return runner, num_blocks, bytes_per_token


def _num_blocks(
    config: ResolvedConfig,
    max_model_len: int,
    bytes_per_token: int,
    step_bytes: int,
    graph_bytes: int,
    device: torch.device,
) -> int:
    if device.type == "cpu":  # the GPU's kernels in the interpreter
        wanted = config.kv_cache_tokens or max_model_len
        return -(-wanted // config.block_size)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    plan = MemoryPlan(total, total - free, step_bytes, graph_bytes, config.gpu_memory_utilization)
    num_blocks = plan.num_blocks(
        bytes_per_token, config.block_size, max_model_len, config.kv_cache_tokens
    )
    logger.info(
        "%d tokens of KV cache: %.1f GiB; weights and others %.1f GiB, a step %.1f GiB, graphs "
        "%.1f GiB.",
        num_blocks * config.block_size,
        num_blocks * config.block_size * bytes_per_token / (1 << 30),
        plan.used / (1 << 30),
        plan.step / (1 << 30),
        plan.graphs / (1 << 30),
    )
    return num_blocks
