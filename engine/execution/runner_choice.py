"""`build_runner`: which runner serves a loaded model, with a KV cache of the size that fits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch

from engine.config import ResolvedConfig
from engine.errors import ModelLoadError
from engine.execution.model_runner import TorchModelRunner
from engine.execution.native_runner import NativeModelRunner
from engine.execution.native_step import NativeDecoderStep, native_decoder
from engine.execution.runner import ModelRunner
from engine.execution.sampler import Sampler
from engine.kernels.native.attention import can_attend
from engine.kernels.native.library import NativeEngine, load_library
from engine.kv.kv_cache import KVCache
from engine.models.config import ModelConfig
from engine.models.decoder import Decoder
from engine.models.packing import Packing
from engine.models.registry import LoadedModel

logger = logging.getLogger(__name__)

DEFAULT_KV_CACHE_TOKENS = 65_536
MAX_MEMORY_SHARE = 0.25
"""Of the memory that is available at start, what the KV cache takes at most by default, where
other programs need the same memory."""

MAX_QUERY_GROUP = 16
"""Query heads that may share a key head where Triton's kernels attend: they are the rows of one
tensor core product."""
MIN_CAPABILITY = (8, 0)
"""CUDA compute capability that Triton's kernels need."""


def build_runner(
    loaded: LoadedModel, config: ResolvedConfig, max_model_len: int
) -> tuple[ModelRunner, int, int]:
    """The runner, ready for its first step, the number of its cache's blocks, and the bytes that a
    token takes in it. Raises ModelLoadError when the memory is too small, or the configuration
    asks for what cannot be."""
    if _takes_triton(loaded, config):
        from engine.execution.triton_assembly import build_triton_runner

        return build_triton_runner(loaded, config, max_model_len)
    model, device = loaded.config, loaded.model.device
    if config.kv_cache_dtype == "fp8":
        raise ModelLoadError("kv_cache_dtype fp8 needs the fused kernels (execution triton).")
    decoder = native_decoder(loaded.model, loaded.packing)
    cache_dtype = loaded.model.dtype if decoder is None else torch.float16
    bytes_per_token = KVCache.bytes_per_token(
        num_layers=model.num_layers,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        dtype=cache_dtype,
    )
    num_blocks = _num_blocks(
        config,
        max_model_len,
        bytes_per_token,
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
    if loaded.packing is not None and decoder is not None:
        step = NativeDecoderStep(decoder, loaded.packing.engine, cache)
        runner = NativeModelRunner(step, cache, Sampler(loaded.tokenizer.eos_token_ids))
        return runner, num_blocks, bytes_per_token
    native = _native_engine(cache, loaded.packing)
    eos_token_ids = frozenset(loaded.tokenizer.eos_token_ids)
    torch_runner = TorchModelRunner(loaded.model, cache, eos_token_ids, native)
    return torch_runner, num_blocks, bytes_per_token


def _takes_triton(loaded: LoadedModel, config: ResolvedConfig) -> bool:
    """Whether the GPU's own runner serves the model. Raises ModelLoadError where it is asked for
    and cannot."""
    is_on_gpu = loaded.model.device.type == "cuda"
    if config.execution == "torch" or (config.execution == "auto" and not is_on_gpu):
        return False
    problem = _triton_problem(loaded, config)
    if config.execution == "triton" and problem is not None:
        raise ModelLoadError(f"execution triton is not possible: {problem}.")
    if problem is not None:
        logger.warning("Torch's own operations compute the steps, which is slow: %s.", problem)
    return problem is None


def _triton_problem(loaded: LoadedModel, config: ResolvedConfig) -> str | None:
    """Why Triton's kernels cannot serve the model, if they cannot."""
    model, shape = loaded.model, loaded.config
    is_packed = loaded.packing is not None
    if is_packed or not isinstance(model, Decoder) or not isinstance(shape, ModelConfig):
        return "this model is not served by the engine's own decoder in floats"
    if find_spec("triton") is None:
        return "Triton is not installed (pip install 'lectern[gpu]')"
    if model.device.type == "cpu" and not _is_interpreting():
        return "the model is on a CPU"
    if config.block_size < 16 or config.block_size & (config.block_size - 1):
        return f"block_size must be a power of two from 16 up, not {config.block_size}"
    group = shape.num_heads // shape.num_kv_heads
    if group > MAX_QUERY_GROUP:
        return f"{group} query heads share a key head, and at most {MAX_QUERY_GROUP} may"
    if model.device.type == "cuda" and torch.cuda.get_device_capability() < MIN_CAPABILITY:
        return "the GPU is older than Ampere (compute capability 8.0)"
    return None


def _is_interpreting() -> bool:
    """Whether Triton's kernels run on a CPU, for tests."""
    import triton

    return bool(triton.knobs.runtime.interpret)


def _native_engine(cache: KVCache, packing: Packing | None) -> NativeEngine | None:
    """The native kernels for attention under torch, where they can serve it."""
    library = load_library()
    if library is None or not can_attend(library, cache):
        return None
    if packing is not None:
        return packing.engine
    return NativeEngine(library, torch.get_num_threads())


def _num_blocks(
    config: ResolvedConfig, max_model_len: int, bytes_per_token: int, available: Callable[[], int]
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
