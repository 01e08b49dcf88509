"""Our reading and writing of the format against the `safetensors` package, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import ModelLoadError
from engine.models.safetensors_file import SafetensorsFile, SafetensorsWriter


def test_reads_what_the_package_writes(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {
        "a": torch.randn(3, 5),
        "b": torch.randn(7).to(torch.bfloat16),
        "c": torch.randn(2, 2).half(),
        "d": torch.arange(6).view(2, 3),
        "scalar": torch.tensor(4.0),
    }
    save_file(tensors, path, metadata={"format": "pt"})
    file = SafetensorsFile(path)
    assert file.entries.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert file.entries[name].shape == tuple(tensor.shape)
        assert torch.equal(file.tensor(name), tensor)


def test_reads_tensors_that_are_not_aligned(tmp_path: Path) -> None:
    path = tmp_path / "odd.safetensors"
    header = json.dumps(
        {
            "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
            "b": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]},
        }
    ).encode()
    values = torch.tensor([1.5, -2.0])
    path.write_bytes(
        len(header).to_bytes(8, "little") + header + b"\x07" + values.numpy().tobytes()
    )
    assert torch.equal(SafetensorsFile(path).tensor("b"), values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_package_reads_what_we_write(tmp_path: Path, dtype: torch.dtype) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {"z": torch.randn(4, 6), "a": torch.randn(5), "m": torch.randn(2, 3, 4)}
    writer = SafetensorsWriter(
        path, [(name, tuple(tensor.shape)) for name, tensor in tensors.items()], dtype
    )
    for name in reversed(tensors):
        writer.put(name, tensors[name])
    writer.sync()
    writer.close()
    read = load_file(path)
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(read[name], tensor.to(dtype))
    ours = SafetensorsFile(path)
    assert ours.entries["z"].end == ours.entries["a"].start  # in the order given
    assert ours.entries["z"].start % 64 == 0


def test_refuses_a_tensor_of_another_size(tmp_path: Path) -> None:
    writer = SafetensorsWriter(tmp_path / "m", [("a", (2, 2))], torch.float32)
    with pytest.raises(ValueError, match="a has 12 bytes"):
        writer.put("a", torch.zeros(3))
    writer.close()


def damaged(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(content)
    return path


def with_header(header: object, data: bytes = b"") -> bytes:
    raw = json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cut|cannot be read"),
        (b"\xff" * 20, "header is cut"),
        ((9).to_bytes(8, "little") + b"not JSON!", "damaged"),
        (with_header([]), "damaged"),
        (with_header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}), "lacks data"),
        (
            with_header({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, b"8bytes.."),
            "size that is not its shape's",
        ),
        (with_header({"a": {"dtype": "F4", "shape": [], "data_offsets": [0, 0]}}), "'F4'"),
        (with_header({"a": {"dtype": "F32"}}), "damaged"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = damaged(tmp_path, content)
    with pytest.raises(ModelLoadError, match=message) as caught:
        SafetensorsFile(path)
    assert path.name in str(caught.value)
