"""`ModelFiles`: what the different forms of a stored model have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.models.common_names import CommonNames
from engine.models.config import ModelConfig, read_model_folder
from engine.models.loader import SafetensorsFolder
from engine.models.sampling_defaults import read_folder_defaults
from engine.models.weights import TensorSource
from engine.text.tokenizer import HFTokenizer


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model that is opened, and whose weights are still to be read."""

    config: ModelConfig
    tokenizer: HFTokenizer
    tensors: TensorSource
    sampling_defaults: Mapping[str, float]
    """Fields of `SamplingParams` that the model's makers set."""


def open_folder(folder: Path) -> ModelFiles:
    """A model folder in Hugging Face's form. Raises ModelLoadError."""
    config = read_model_folder(folder)
    tokenizer = HFTokenizer.from_folder(folder, eos_token_ids=config.eos_token_ids)
    tensors = CommonNames(SafetensorsFolder(folder), config)
    return ModelFiles(config, tokenizer, tensors, read_folder_defaults(folder))
