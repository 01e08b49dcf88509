"""Model folders: one file or shards, and what is said when something is missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.errors import ModelLoadError
from engine.models.loader import INDEX_FILE, SINGLE_FILE, SafetensorsFolder
from engine.models.registry import load_model
from tests.support.tiny_models import build_tiny_model

CASES = Path(__file__).parents[2] / "cases"


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A copy of the sharded model that a test may change."""
    return Path(shutil.copytree(CASES / "MOD-01-tied_sharded", tmp_path / "model"))


@pytest.fixture
def single(tmp_path: Path, tiny_model: Callable[[str], Path]) -> Path:
    """A copy of a model in one file that a test may change."""
    return Path(shutil.copytree(tiny_model("llama_tied"), tmp_path / "model"))


def change(path: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(path)
    edit(tensors)
    copied = {name: tensor.clone() for name, tensor in tensors.items()}
    path.unlink()
    save_file(copied, path)


def test_shards_hold_the_same_tensors_as_one_file(tmp_path: Path) -> None:
    one = build_tiny_model(tmp_path / "one", "qwen2")
    two = build_tiny_model(tmp_path / "two", "qwen2", num_shards=2)
    assert len(list(two.glob("*.safetensors"))) == 2
    single, sharded = SafetensorsFolder(one), SafetensorsFolder(two)
    assert set(single.names) == set(sharded.names)
    for name in single.names:
        assert torch.equal(single.tensor(name), sharded.tensor(name))


def test_missing_shard_is_named(shards: Path) -> None:
    (shards / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelLoadError, match=r"model-00002-of-00002\.safetensors is missing"):
        load_model(EngineConfig(model=shards))


def test_index_entry_without_a_tensor_is_named(shards: Path) -> None:
    index = json.loads((shards / INDEX_FILE).read_text("utf-8"))
    name = next(iter(index["weight_map"]))
    change(shards / index["weight_map"][name], lambda tensors: tensors.pop(name))
    with pytest.raises(ModelLoadError) as caught:
        load_model(EngineConfig(model=shards))
    assert name in str(caught.value)
    assert index["weight_map"][name] in str(caught.value)


def test_tensor_that_the_index_forgets_is_named(shards: Path) -> None:
    index = json.loads((shards / INDEX_FILE).read_text("utf-8"))
    del index["weight_map"]["model.layers.1.mlp.up_proj.weight"]
    (shards / INDEX_FILE).write_text(json.dumps(index), "utf-8")
    with pytest.raises(ModelLoadError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(EngineConfig(model=shards))


def test_index_does_not_lead_out_of_its_folder(shards: Path) -> None:
    index = {"weight_map": {"model.norm.weight": "../model/model-00001-of-00002.safetensors"}}
    (shards / INDEX_FILE).write_text(json.dumps(index), "utf-8")
    with pytest.raises(ModelLoadError, match="elsewhere"):
        SafetensorsFolder(shards)


@pytest.mark.parametrize("content", ["{}", '{"weight_map": []}'])
def test_index_without_a_map(shards: Path, content: str) -> None:
    (shards / INDEX_FILE).write_text(content, "utf-8")
    with pytest.raises(ModelLoadError, match="weight_map"):
        SafetensorsFolder(shards)


def test_cut_file_is_named(single: Path) -> None:
    whole = (single / SINGLE_FILE).read_bytes()
    (single / SINGLE_FILE).write_bytes(whole[: len(whole) - 100])
    with pytest.raises(ModelLoadError, match=r"model\.safetensors is cut"):
        load_model(EngineConfig(model=single))


def test_folder_without_weights_is_named(single: Path) -> None:
    (single / SINGLE_FILE).unlink()
    with pytest.raises(ModelLoadError, match="holds neither"):
        load_model(EngineConfig(model=single))


def test_wrong_shape_is_named(single: Path) -> None:
    name = "model.layers.0.self_attn.k_proj.weight"
    change(single / SINGLE_FILE, lambda tensors: tensors.update({name: torch.zeros(8, 64)}))
    with pytest.raises(ModelLoadError, match=rf"{name}.*\[8, 64\].*\[32, 64\]"):
        load_model(EngineConfig(model=single))


def test_rotary_table_and_head_of_a_tied_model_are_ignored(single: Path) -> None:
    extra = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8),
        "lm_head.weight": torch.zeros(320, 64),
    }
    change(single / SINGLE_FILE, lambda tensors: tensors.update(extra))
    model: Any = load_model(EngineConfig(model=single, dtype="float32")).model
    assert model.head.weight.data_ptr() == model.embedding.weight.data_ptr()
    assert model.head.weight.abs().sum() > 0


def test_tensor_of_another_architecture_is_named(single: Path) -> None:
    extra = {"model.layers.0.self_attn.q_norm.weight": torch.ones(16)}
    change(single / SINGLE_FILE, lambda tensors: tensors.update(extra))
    with pytest.raises(ModelLoadError, match=r"layers\.0\.self_attn\.q_norm\.weight"):
        load_model(EngineConfig(model=single))
