"""`load_model`: from a path to a model that can run, with its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from engine.config import EngineConfig
from engine.errors import ModelLoadError
from engine.models.blocks import BlockSource
from engine.models.config import ModelConfig, read_architecture, read_json, read_model_folder
from engine.models.decoder import Decoder
from engine.models.decoder_builder import build_decoder
from engine.models.families import is_known
from engine.models.fp8 import Fp8Weights, check_capability
from engine.models.generic import GenericConfig, GenericModel, load_generic
from engine.models.linear import can_multiply_bfloat16_fast
from engine.models.model_files import open_folder
from engine.models.packing import Packing, choose_packing
from engine.models.sampling_defaults import read_folder_defaults
from engine.models.weights import PlainWeights, WeightReader, Weights
from engine.text.protocol import Tokenizer
from engine.text.tokenizer import HFTokenizer
from engine.types import LoadProgress

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run. `model.dtype` and `model.device` say what was chosen."""

    config: ModelConfig | GenericConfig
    model: Decoder | GenericModel
    tokenizer: Tokenizer
    packing: Packing | None = None
    """How the weights were packed; None: they are tensors of `model.dtype`."""
    sampling_defaults: Mapping[str, float] = field(default_factory=dict)
    """Fields of `SamplingParams` that the model's makers set; a request's own count first."""


def load_model(config: EngineConfig, on_progress: LoadProgress | None = None) -> LoadedModel:
    """Loads what `config.model` names: a folder in Hugging Face's form or a GGUF file; with
    `load_format` dummy, random weights for the configuration there.

    Raises ModelLoadError, naming the file, tensor or field."""
    report = on_progress or _say_nothing
    device = choose_device(config.device)
    if not config.model.exists():
        raise ModelLoadError(f"There is no model at {config.model}.")
    for name in ("quantization", "kv_cache_dtype"):
        if getattr(config, name) == "fp8":
            check_capability(device, f"{name} fp8")
    packing = choose_packing(config, device, is_gguf=_is_gguf(config))
    if packing is not None and config.quantization != "none":
        raise ModelLoadError(
            f"quantization {config.quantization} starts from floats: it does not go together with "
            f"weights {config.weights}."
        )
    if config.load_format == "dummy":
        return _load_dummy(config, device, packing)
    dtype = torch.float32
    if _is_gguf(config):
        from engine.models.gguf_conversion import open_gguf, open_gguf_directly

        if packing is not None:
            files = open_gguf_directly(config.model, report)
        else:
            dtype = choose_dtype(config.dtype, device, None)
            files = open_gguf(config.model, config.cache_dir, dtype, report)
    elif not _is_own_form(config):
        if packing is not None:
            raise ModelLoadError(
                f"weights {config.weights} are for the engine's own architectures only."
            )
        if config.quantization != "none":
            raise ModelLoadError(
                f"quantization {config.quantization} is for the engine's own architectures only."
            )
        return _load_generic(config, device, report)
    else:
        files = open_folder(config.model)
        if packing is None:
            dtype = choose_dtype(config.dtype, device, files.config.dtype)
    sentence = f"Loading {config.model.name}"
    report(sentence, 0.0)

    def tell(fraction: float) -> None:
        report(sentence, fraction)

    reader = WeightReader(files.tensors, dtype=dtype, device=device, on_fraction=tell)
    blocks = files.tensors if isinstance(files.tensors, BlockSource) else None
    model = build_decoder(
        files.config,
        _wrap(reader, config, packing, blocks),
        max_model_len=files.config.max_model_len(config.max_model_len),
    )
    return LoadedModel(files.config, model, files.tokenizer, packing, files.sampling_defaults)


def _wrap(
    weights: PlainWeights,
    config: EngineConfig,
    packing: Packing | None,
    blocks: BlockSource | None = None,
) -> Weights:
    """`weights` in the form that they are kept in."""
    if packing is not None:
        return packing.wrap(weights, blocks)
    return Fp8Weights(weights) if config.quantization == "fp8" else weights


def _is_own_form(config: EngineConfig) -> bool:
    return is_known(read_architecture(read_json(config.model / "config.json")))


def _load_generic(config: EngineConfig, device: torch.device, report: LoadProgress) -> LoadedModel:
    content = read_json(config.model / "config.json")
    dtype = choose_dtype(config.dtype, device, content.get("dtype") or content.get("torch_dtype"))
    report(f"Loading {config.model.name} by way of transformers (slower)", None)
    generic, model = load_generic(config.model, dtype=dtype, device=device)
    generic.max_model_len(config.max_model_len)  # refuses before the server starts
    tokenizer = HFTokenizer.from_folder(config.model, eos_token_ids=generic.eos_token_ids)
    defaults = read_folder_defaults(config.model)
    return LoadedModel(generic, model, tokenizer, sampling_defaults=defaults)


def choose_device(name: str) -> torch.device:
    """The device that `name` asks for. Raises ModelLoadError when there is none."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ModelLoadError("device cuda was asked for, but torch finds no CUDA device.")
    return torch.device(name)


def choose_dtype(name: str, device: torch.device, stored: str | None) -> torch.dtype:
    """`auto`: on a CPU bfloat16 where it has products of it, else float32; on a GPU the
    checkpoint's own 16-bit dtype, else bfloat16."""
    if name != "auto":
        return _DTYPES[name]
    if device.type == "cpu":
        return torch.bfloat16 if can_multiply_bfloat16_fast() else torch.float32
    return torch.float16 if stored == "float16" else torch.bfloat16


def _is_gguf(config: EngineConfig) -> bool:
    if config.load_format == "auto":
        return config.model.is_file()
    return config.load_format == "gguf"


def _load_dummy(config: EngineConfig, device: torch.device, packing: Packing | None) -> LoadedModel:
    from engine.models.dummy import RandomWeights, byte_level_tokenizer

    model_config = read_model_folder(config.model)
    if packing is None:
        dtype = choose_dtype(config.dtype, device, model_config.dtype)
    else:
        dtype = torch.float32
    random = RandomWeights(dtype=dtype, device=device)
    model = build_decoder(
        model_config,
        _wrap(random, config, packing),
        max_model_len=model_config.max_model_len(config.max_model_len),
    )
    has_tokenizer = (config.model / "tokenizer.json").exists()
    tokenizer = (
        HFTokenizer.from_folder(config.model, eos_token_ids=model_config.eos_token_ids)
        if has_tokenizer
        else byte_level_tokenizer()
    )
    return LoadedModel(model_config, model, tokenizer, packing)


def _say_nothing(_sentence: str, _fraction: float | None) -> None:
    pass
