"""A tokenizer without its model counts as the model's own does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.api import EngineConfig, ModelLoadError, load_tokenizer
from engine.models.gguf_conversion import open_gguf_directly
from engine.models.model_files import open_folder
from tests.support.gguf_files import write_gguf
from tests.support.tiny_models import build_tiny_model

TEXT = "Chunked prefill splits a long prompt. 分块预填充。<|im_end|>"


def test_of_a_folder(tmp_path: Path) -> None:
    folder = build_tiny_model(tmp_path / "model", "llama")
    found = load_tokenizer(EngineConfig(model=folder, served_name="m"))
    assert found.encode(TEXT) == open_folder(folder).tokenizer.encode(TEXT)


def test_of_a_gguf_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", build_tiny_model(tmp_path / "model", "llama"))
    found = load_tokenizer(EngineConfig(model=path, served_name="m"))
    own = open_gguf_directly(path, lambda *_: None).tokenizer
    assert found.encode(TEXT) == own.encode(TEXT)


def test_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no model at"):
        load_tokenizer(EngineConfig(model=tmp_path / "nothing", served_name="m"))


def test_it_needs_no_torch() -> None:
    program = "import sys, engine.models.model_tokenizer; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
