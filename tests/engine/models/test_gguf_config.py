"""config.json out of GGUF metadata: that of the folder the file was made from, and what is
refused."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.config import read_json, read_model_config, read_model_folder
from engine.models.gguf_config import gguf_config, gguf_generation_config
from engine.models.gguf_file import GGUFFile, GGUFTensor
from engine.models.gguf_model import GGUFTensors
from engine.models.rope import inverse_frequencies
from engine.models.rope_config import RopeConfig
from tests.support.gguf_files import GGUF_MODELS, write_gguf


@pytest.mark.parametrize("name", GGUF_MODELS)
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
        ({"general__architecture": "mamba"}, UnsupportedModelError, "'mamba'.*llama, phi3, qwen2"),
        ({"llama__rope__scaling__type": "su"}, UnsupportedModelError, "'su'"),
        ({"llama__rope__dimension_count": 8}, UnsupportedModelError, "rope.dimension_count is 8"),
        ({"llama__attention__value_length": 8}, UnsupportedModelError, "attention.value_length"),
        ({"llama__attention__head_count_kv": [2, 1]}, UnsupportedModelError, "differs by layer"),
        ({"llama__logit_scale": 0.5}, UnsupportedModelError, "llama.logit_scale"),
        ({"llama__expert_count": 8}, ModelLoadError, "lacks llama.expert_used_count"),
        (
            {"llama__expert_count": 8, "llama__expert_used_count": 2},
            ModelLoadError,
            "lacks the tensor blk.0.ffn_gate_exps.weight",
        ),
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


def test_yarn_rope_scaling(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    scaling = {
        "qwen2__rope__scaling__type": "yarn",
        "qwen2__rope__scaling__factor": 4.0,
        "qwen2__rope__scaling__original_context_length": 128,
    }
    file = rewritten(tmp_path / "m.gguf", tiny_model("qwen2"), **scaling)
    rope = read_model_config(gguf_config(file)).rope
    assert (rope.kind, rope.factor, rope.original_max_position_embeddings) == ("yarn", 4.0, 128)
    assert rope.attention_factor == pytest.approx(0.1 * np.log(4) + 1)


def test_gemma3_defaults_of_real_files(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    """No pattern and no local base in the file: every sixth layer sees everything, and the
    others turn by 10,000. The largest ones have another scale of scores."""
    file = rewritten(tmp_path / "m.gguf", tiny_model("gemma3"), gemma3__block_count=7)
    pattern = "gemma3.attention.sliding_window_pattern"
    file.metadata = {key: value for key, value in file.metadata.items() if key != pattern}
    config = read_model_config(gguf_config(file))
    assert config.layer_windows == (16, 16, 16, 16, 16, None, 16)
    assert config.layer_ropes[5] == config.rope == RopeConfig(1e6)
    assert config.layer_ropes[0] == RopeConfig(1e4)
    assert config.attention_scale == 24**-0.5
    file.metadata = {**file.metadata, "gemma3.block_count": 62}
    assert read_model_config(gguf_config(file)).attention_scale == 16**-0.5
    file.metadata = {**file.metadata, "gemma3.attention.sliding_window": 0}
    assert set(read_model_config(gguf_config(file)).layer_windows) == {None}


def test_absent_field_is_named(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    file = rewritten(tmp_path / "m.gguf", tiny_model("llama"))
    file.metadata = {k: v for k, v in file.metadata.items() if k != "llama.block_count"}
    with pytest.raises(ModelLoadError, match=r"llama\.block_count"):
        gguf_config(file)


def test_end_of_turn_tokens_end_an_answer_too(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """The file names one EOS; `<|endoftext|>` ends an answer as well."""
    file = rewritten(tmp_path / "m.gguf", tiny_model("llama"))
    assert gguf_generation_config(file) == {"eos_token_id": [0, 2]}
    assert read_json(tiny_model("llama") / "generation_config.json")["eos_token_id"] == [0, 2]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            (key, value)
            for key in ("attention.head_count", "embedding_length", "block_count", "context_length")
            for value in (0, -1, 2**63, "x", 1.5, True)
        ),
        *(
            (key, value)
            for key in ("attention.layer_norm_rms_epsilon", "rope.freq_base")
            for value in (0.0, -1.0, math.nan, math.inf, "x", [1.0])
        ),
        ("expert_count", -1),
        ("attention.key_length", 0),
        ("attention.value_length", "x"),
        ("rope.scaling.type", 7),
    ],
)
def test_senseless_metadata_are_named(
    key: str, value: Any, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    file = rewritten(tmp_path / "m.gguf", tiny_model("llama"))
    file.metadata = {**file.metadata, f"llama.{key}": value}
    with pytest.raises(ModelLoadError, match=rf"m\.gguf: llama\.{re.escape(key)} "):
        gguf_config(file)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokenizer.ggml.eos_token_id", 999_999),
        ("tokenizer.ggml.bos_token_id", "x"),
        ("tokenizer.ggml.tokens", 5),
        ("general.sampling.temp", math.nan),
        ("general.architecture", 3),
    ],
)
def test_senseless_metadata_of_tokens_are_named(
    key: str, value: Any, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    file = rewritten(tmp_path / "m.gguf", tiny_model("llama"))
    file.metadata = {**file.metadata, key: value}
    read = gguf_generation_config if "sampling" in key else gguf_config
    with pytest.raises(ModelLoadError, match=re.escape(key)):
        read(file)


def test_frequency_factors_of_another_width_are_named(
    tiny_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = rewritten(tmp_path / "m.gguf", tiny_model("llama"))
    entry = GGUFTensor(GGMLQuantizationType.F32, (5,), 0, 0)
    file.tensors = {**file.tensors, "rope_freqs.weight": entry}
    monkeypatch.setattr(file, "dequantize", lambda name: np.ones(5, np.float32))
    with pytest.raises(ModelLoadError, match=r"rope_freqs\.weight .* 8 frequencies"):
        gguf_config(file)


def test_an_embedding_that_is_no_matrix_is_named(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    file = rewritten(tmp_path / "m.gguf", tiny_model("llama"))
    entry = GGUFTensor(GGMLQuantizationType.F32, (), 0, 4)
    file.tensors = {**file.tensors, "token_embd.weight": entry}
    with pytest.raises(ModelLoadError, match=r"token_embd\.weight has 0 dimensions, not 2"):
        gguf_config(file)
