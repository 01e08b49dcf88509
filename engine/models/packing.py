"""`choose_packing`: whether a model's weights are packed for the native kernels, and how."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from engine.config import EngineConfig
from engine.errors import ModelLoadError
from engine.kernels.native.library import NativeEngine, load_library
from engine.models.blocks import BlockSource
from engine.models.gguf_file import GGUFFile
from engine.models.packed import PackedKind, PackedWeights
from engine.models.weights import PlainWeights

logger = logging.getLogger(__name__)

_KINDS = {"q8": PackedKind.Q8, "q4": PackedKind.Q4_MIN}


@dataclass(frozen=True, slots=True)
class Packing:
    """`kind` None keeps the codes of a quantized file."""

    engine: NativeEngine
    kind: PackedKind | None

    def wrap(self, weights: PlainWeights, blocks: BlockSource | None = None) -> PackedWeights:
        """`weights` (float32, CPU) with packed projections; `blocks`: as their file has them."""
        return PackedWeights(weights, self.engine, self.kind, blocks)


def choose_packing(config: EngineConfig, device: torch.device, *, is_gguf: bool) -> Packing | None:
    """How `config.weights` is to be understood here. `auto` keeps a quantized file's own codes on
    a CPU, unless a dtype was asked for. Raises ModelLoadError for what cannot be had."""
    if config.weights == "float" or (config.weights == "auto" and not _is_fit(config, is_gguf)):
        return None
    if device.type != "cpu":
        if config.weights == "auto":
            return None
        raise ModelLoadError(f"weights {config.weights} are for a CPU, not for {device.type}.")
    library = load_library()
    if library is None:
        if config.weights == "auto":
            logger.info("The native kernels were not built: the weights are turned into floats.")
            return None
        raise ModelLoadError(
            f"weights {config.weights} need the native kernels, which scripts/setup builds where "
            "a C++ compiler is installed."
        )
    return Packing(NativeEngine(library, torch.get_num_threads()), _KINDS.get(config.weights))


def _is_fit(config: EngineConfig, is_gguf: bool) -> bool:
    if not is_gguf or config.dtype != "auto" or config.load_format == "dummy":
        return False
    library = load_library()
    if library is None:
        return True
    tensors = GGUFFile(config.model).tensors.values()
    return any(library.lectern_kind_of_source(int(tensor.type)) >= 0 for tensor in tensors)
