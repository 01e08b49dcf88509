"""A GGUF file gives the same model as the folder that it was made from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from engine.config import EngineConfig
from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.config import RopeConfig, read_json, read_model_config, read_model_folder
from engine.models.gguf_file import GGUFFile, GGUFTensor
from engine.models.gguf_model import GGUFTensors, gguf_config, gguf_generation_config
from engine.models.loader import SafetensorsFolder
from engine.models.registry import load_model
from engine.models.rope import inverse_frequencies
from tests.engine.models.running import logits_of
from tests.support.tiny_models import write_gguf

NAMES = ["llama", "llama_tied", "qwen2"]


@pytest.mark.parametrize("name", NAMES)
def test_configuration_is_that_of_the_folder(
    name: str, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tiny_model(name)
    file = GGUFFile(write_gguf(tmp_path / "m.gguf", folder))
    read = read_model_config(gguf_config(file), gguf_generation_config(file))
    expected = read_model_folder(folder)
    for field in read.__slots__:
        if field != "dtype":
            value = getattr(read, field)
            approx = pytest.approx(value) if isinstance(value, float) else value
            assert getattr(expected, field) == approx, field


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_0"])
def test_tensors_are_those_of_the_folder(
    name: str, kind: str, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """Equal after one quantization: a row of a head that is put back in another place would
    not be."""
    folder = tiny_model(name)
    file = GGUFFile(write_gguf(tmp_path / "m.gguf", folder, kind))
    read, original = GGUFTensors(file, gguf_config(file)), SafetensorsFolder(folder)
    assert set(read.names) == set(original.names)
    code = GGMLQuantizationType[kind]
    for tensor_name in read.names:
        expected = original.tensor(tensor_name)
        if expected.dim() == 2:
            expected = torch.from_numpy(dequantize(quantize(expected.numpy(), code), code))
        assert torch.equal(read.tensor(tensor_name), expected), tensor_name


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_folder(
    name: str, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tiny_model(name)
    path = write_gguf(tmp_path / "m.gguf", folder)
    ids = list(range(3, 40))
    ours = load_model(EngineConfig(model=path, dtype="float32")).model
    expected = load_model(EngineConfig(model=folder, dtype="float32")).model
    torch.testing.assert_close(logits_of(ours, ids), logits_of(expected, ids))


def rewritten(path: Path, folder: Path, **changes: Any) -> GGUFFile:
    return GGUFFile(write_gguf(path, folder, **changes))


def test_linear_rope_scaling(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    scaling = {"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 4.0}
    file = rewritten(tmp_path / "m.gguf", tiny_model("llama"), **scaling)
    assert read_model_config(gguf_config(file)).rope == RopeConfig(1e4, "linear", 4.0)


def test_llama3_rope_scaling_is_found_from_its_divisors(
    tiny_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = rewritten(tmp_path / "m.gguf", tiny_model("llama"), llama__rope__freq_base=500000.0)
    rope = RopeConfig(500000.0, "llama3", 32.0, 1.0, 4.0, 8192)
    divisors = inverse_frequencies(RopeConfig(500000.0), 16) / inverse_frequencies(rope, 16)
    entry = GGUFTensor(GGMLQuantizationType.F32, (8,), 0, 0)
    file.tensors = {**file.tensors, "rope_freqs.weight": entry}
    monkeypatch.setattr(file, "dequantize", lambda name: divisors.numpy())
    assert read_model_config(gguf_config(file)).rope == rope
    assert "rope_freqs.weight" not in GGUFTensors(file, gguf_config(file)).names
    monkeypatch.setattr(file, "dequantize", lambda name: divisors.numpy() * 1.5)
    with pytest.raises(UnsupportedModelError, match="frequency factors"):
        gguf_config(file)


@pytest.mark.parametrize(
    ("changes", "error", "word"),
    [
        ({"general__architecture": "mamba"}, UnsupportedModelError, "'mamba'.*llama, qwen2"),
        ({"llama__expert_count": 8}, UnsupportedModelError, "mixture of experts"),
        ({"llama__rope__scaling__type": "yarn"}, UnsupportedModelError, "'yarn'"),
    ],
)
def test_what_is_not_supported_is_named(
    changes: dict[str, Any],
    error: type[Exception],
    word: str,
    tiny_model: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    file = rewritten(tmp_path / "m.gguf", tiny_model("llama"))
    changed = {key.replace("__", "."): value for key, value in changes.items()}
    file.metadata = {**file.metadata, **changed}
    with pytest.raises(error, match=word):
        gguf_config(file)


def test_absent_field_and_unknown_tensor_are_named(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    file = rewritten(tmp_path / "m.gguf", tiny_model("llama"))
    config = gguf_config(file)
    file.metadata = {k: v for k, v in file.metadata.items() if k != "llama.block_count"}
    with pytest.raises(ModelLoadError, match=r"llama\.block_count"):
        gguf_config(file)
    file.tensors = {**file.tensors, "blk.0.ssm_in.weight": file.tensors["token_embd.weight"]}
    with pytest.raises(ModelLoadError, match=r"blk\.0\.ssm_in\.weight"):
        GGUFTensors(file, config)


def test_end_of_turn_tokens_end_an_answer_too(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """The file names one EOS; `<|endoftext|>` ends an answer as well."""
    file = rewritten(tmp_path / "m.gguf", tiny_model("llama"))
    assert gguf_generation_config(file) == {"eos_token_id": [0, 2]}
    assert read_json(tiny_model("llama") / "generation_config.json")["eos_token_id"] == [0, 2]
