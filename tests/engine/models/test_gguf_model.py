"""A GGUF file gives the same tensors, and so the same model, as the folder it was made from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

from engine.config import EngineConfig
from engine.errors import ModelLoadError
from engine.models.common_names import CommonNames
from engine.models.config import read_model_folder
from engine.models.gguf_config import gguf_config
from engine.models.gguf_file import GGUFFile
from engine.models.gguf_model import GGUFTensors
from engine.models.loader import SafetensorsFolder
from engine.models.registry import load_model
from tests.engine.models.running import logits_of
from tests.support.gguf_files import GGUF_MODELS, write_gguf
from tests.support.oracle import load_gguf_oracle


def open_tensors(path: Path) -> GGUFTensors:
    file = GGUFFile(path)
    return GGUFTensors(file, gguf_config(file))


@pytest.mark.parametrize("name", GGUF_MODELS)
@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_0"])
def test_tensors_are_those_of_the_folder(
    name: str, kind: str, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """Equal after one quantization: a row of a head that is put back in another place, or an
    expert in another's, would not be."""
    folder = tiny_model(name)
    read = open_tensors(write_gguf(tmp_path / "m.gguf", folder, kind))
    original = CommonNames(SafetensorsFolder(folder), read_model_folder(folder))
    assert set(read.names) == set(original.names)
    code = GGMLQuantizationType[kind]
    for tensor_name in read.names:
        expected = original.tensor(tensor_name)
        assert read.shape(tensor_name) == expected.shape
        if expected.dim() == 2 and not tensor_name.endswith("gate.weight"):
            expected = torch.from_numpy(
                dequantize(quantize(expected.contiguous().numpy(), code), code)
            )
            assert torch.equal(read.tensor(tensor_name), expected), tensor_name
        else:
            # Gemma's norms lose their last bits when one is added and taken away again.
            torch.testing.assert_close(read.tensor(tensor_name), expected, rtol=0, atol=2e-7)


@pytest.mark.parametrize("name", ["llama_biases", "phi3", "mixtral"])
def test_blocks_are_the_same_rows_as_the_tensor(
    name: str, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    read = open_tensors(write_gguf(tmp_path / "m.gguf", tiny_model(name), "Q8_0"))
    for tensor_name in read.names:
        shape = read.shape(tensor_name)
        if len(shape) != 2:
            continue
        blocks = read.blocks(tensor_name)
        code = GGMLQuantizationType(blocks.kind)
        block, block_bytes = GGML_QUANT_SIZES[code]
        raw = blocks.data.numpy().reshape(shape[0], shape[1] // block * block_bytes)
        values = torch.from_numpy(dequantize(raw, code))
        if blocks.row_map is not None:
            values = values[blocks.row_map]
        assert torch.equal(values, read.tensor(tensor_name)), tensor_name


@pytest.mark.parametrize("name", GGUF_MODELS)
def test_logits_are_those_of_the_folder(
    name: str, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """Read directly, and through a converted copy."""
    folder = tiny_model(name)
    path = write_gguf(tmp_path / "m.gguf", folder)
    ids = list(range(3, 40))
    expected = logits_of(
        load_model(EngineConfig(model=folder, dtype="float32", device="cpu")).model, ids
    )
    for cache_dir in (None, tmp_path / "cache"):
        config = EngineConfig(model=path, dtype="float32", device="cpu", cache_dir=cache_dir)
        torch.testing.assert_close(logits_of(load_model(config).model, ids), expected)


@pytest.mark.parametrize("name", ["llama", "qwen2", "phi3"])
def test_logits_are_those_of_transformers_reading_of_the_file(
    name: str, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """For the forms whose fields it all reads."""
    path = write_gguf(tmp_path / "m.gguf", tiny_model(name), "Q8_0")
    ids = list(range(3, 18))  # within the window, which it does not read
    theirs, _ = load_gguf_oracle(path)
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits[0]
    ours = load_model(EngineConfig(model=path, dtype="float32", device="cpu")).model
    torch.testing.assert_close(logits_of(ours, ids), expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("unknown", ["blk.0.ssm_in.weight", "ssm_in.weight", "x", "blk.0.a.b.c"])
def test_unknown_tensor_is_named(
    unknown: str, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    file = GGUFFile(write_gguf(tmp_path / "m.gguf", tiny_model("llama")))
    config = gguf_config(file)
    file.tensors = {**file.tensors, unknown: file.tensors["token_embd.weight"]}
    with pytest.raises(ModelLoadError, match=unknown):
        GGUFTensors(file, config)


def test_merged_tensor_of_another_size_is_named(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    file = GGUFFile(write_gguf(tmp_path / "m.gguf", tiny_model("phi3")))
    config = {**gguf_config(file), "num_key_value_heads": 4}
    with pytest.raises(ModelLoadError, match=r"blk\.0\.attn_qkv\.weight"):
        GGUFTensors(file, config)
