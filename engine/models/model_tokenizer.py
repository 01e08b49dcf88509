"""`read_tokenizer`: a model's tokenizer without the model, and without torch."""

from __future__ import annotations

import json

from engine.config import EngineConfig
from engine.errors import ModelLoadError
from engine.models.gguf_file import GGUFFile
from engine.models.gguf_tokenizer import tokenizer_config, tokenizer_json
from engine.text.protocol import Tokenizer
from engine.text.tokenizer import HFTokenizer


def read_tokenizer(config: EngineConfig) -> Tokenizer:
    """The tokenizer of what `config.model` names: a folder in Hugging Face's form, or a GGUF file.
    Raises ModelLoadError."""
    path = config.model
    if not path.exists():
        raise ModelLoadError(f"There is no model at {path}.")
    if path.is_file():
        metadata = GGUFFile(path).metadata
        return HFTokenizer(json.dumps(tokenizer_json(metadata)), tokenizer_config(metadata))
    if config.load_format == "dummy" and not (path / "tokenizer.json").exists():
        from engine.models.dummy import byte_level_tokenizer

        return byte_level_tokenizer()
    return HFTokenizer.from_folder(path)
