"""The GGUF header and blocks against what the `gguf` package writes, and damaged files."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.gguf_file import SUPPORTED_TYPES, GGUFFile

KINDS = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
VALUES = np.random.default_rng(3).normal(size=(600, 512)).astype(np.float32)


def write(path: Path, kind: str = "Q8_0") -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 7)
    writer.add_float32("some.float", 0.5)
    writer.add_bool("some.flag", True)
    writer.add_array("some.numbers", [1, 2, 3])
    writer.add_array("some.texts", ["a", "", "缓存"])
    writer.add_string("some.text", "x\ny")
    code = GGMLQuantizationType[kind]
    writer.add_tensor("first", np.arange(32, dtype=np.float32))
    writer.add_tensor("matrix", quantize(VALUES, code), raw_dtype=code)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_reads_what_the_package_writes(tmp_path: Path, kind: str) -> None:
    file = GGUFFile(write(tmp_path / "m.gguf", kind))
    assert file.metadata["general.architecture"] == "llama"
    assert file.metadata["llama.block_count"] == 7
    assert file.metadata["some.float"] == 0.5
    assert file.metadata["some.flag"] is True
    assert file.metadata["some.numbers"] == [1, 2, 3]
    assert file.metadata["some.texts"] == ["a", "", "缓存"]
    assert file.metadata["some.text"] == "x\ny"
    assert file.tensors["matrix"].shape == (600, 512)
    code = GGMLQuantizationType[kind]
    expected = dequantize(quantize(VALUES, code), code)
    assert np.array_equal(file.dequantize("matrix"), expected)
    assert np.array_equal(file.dequantize("first"), np.arange(32))


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_reads_blocks_that_the_package_cannot_write(tmp_path: Path, kind: str) -> None:
    """The result equals the package's reading of the same bytes."""
    code = GGMLQuantizationType[kind]
    block, block_bytes = gguf.GGML_QUANT_SIZES[code]
    raw = np.random.default_rng(4).integers(0, 60, (64, 512 // block * block_bytes), np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("matrix", raw, raw_dtype=code)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile(tmp_path / "m.gguf")
    assert file.tensors["matrix"].shape == (64, 512)
    assert np.array_equal(file.dequantize("matrix"), dequantize(raw, code), equal_nan=True)


def test_unknown_quantization_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    code = GGMLQuantizationType.IQ4_XS
    raw = np.zeros((2, gguf.GGML_QUANT_SIZES[code][1]), np.uint8)
    writer.add_tensor("matrix", raw, raw_dtype=code)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match=r"'matrix'.*IQ4_XS.*Q4_K"):
        GGUFFile(tmp_path / "m.gguf")


def write_raw(path: Path, kind: int, columns: int, *, offset: int = 0, alignment: int = 32) -> Path:
    """A file of one tensor of 8 rows, written as it stands, with room for any kind of data."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    header = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
    header += text("general.alignment") + struct.pack("<II", 4, alignment)
    header += text("matrix") + struct.pack("<IQQIQ", 2, columns, 8, kind, offset)
    path.write_bytes(header + bytes(1 << 16))
    return path


@pytest.mark.parametrize("code", sorted(SUPPORTED_TYPES))
def test_columns_are_whole_blocks(code: GGMLQuantizationType, tmp_path: Path) -> None:
    """A row of half a block is refused, though the whole tensor has a whole number of blocks."""
    block, _ = gguf.GGML_QUANT_SIZES[code]
    whole = GGUFFile(write_raw(tmp_path / "m.gguf", code, 3 * block))
    assert whole.tensors["matrix"].shape == (8, 3 * block)
    if block > 1:
        columns = 3 * block // 2
        path = write_raw(tmp_path / "m.gguf", code, columns)
        words = rf"'matrix'.* {code.name}, in blocks of {block}, and has {columns} columns"
        with pytest.raises(ModelLoadError, match=words):
            GGUFFile(path)


def test_senseless_alignment_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"general\.alignment must be a positive"):
        GGUFFile(write_raw(tmp_path / "m.gguf", GGMLQuantizationType.F32, 4, alignment=0))


def test_a_tensor_between_the_aligned_places_is_named(tmp_path: Path) -> None:
    kind = GGMLQuantizationType.F32
    aligned = GGUFFile(write_raw(tmp_path / "m.gguf", kind, 4, offset=64))
    assert aligned.tensors["matrix"].start % 32 == 0
    with pytest.raises(ModelLoadError, match=r"'matrix' does not begin at a multiple of 32"):
        GGUFFile(write_raw(tmp_path / "m.gguf", kind, 4, offset=3))


@pytest.mark.parametrize("kept", [0, 3, 10, 40, 150, 400, -1])
def test_cut_file_is_named(tmp_path: Path, kept: int) -> None:
    whole = write(tmp_path / "m.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[:kept])
    with pytest.raises(ModelLoadError, match=r"cut\.gguf"):
        GGUFFile(path)


def test_other_file_and_missing_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "other.gguf").write_bytes(b"PK\x03\x04" + bytes(100))
    for name in ("other.gguf", "missing.gguf"):
        with pytest.raises(ModelLoadError, match=name):
            GGUFFile(tmp_path / name)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_rows_of_a_tensor_and_its_bytes(tmp_path: Path, kind: str) -> None:
    file = GGUFFile(write(tmp_path / "m.gguf", kind))
    whole = file.dequantize("matrix")
    assert file.num_rows("matrix") == 600
    assert np.array_equal(file.dequantize("matrix", 590, 7), whole[590:597])
    code, raw = file.raw("matrix")
    assert code == GGMLQuantizationType[kind]
    assert np.array_equal(dequantize(raw.reshape(600, -1), code), whole)
