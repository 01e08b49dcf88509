"""The safetensors format: a mapped file as tensors, and writing a file piece by piece.

The format is an 8-byte little-endian header length, a JSON header (name → dtype, shape, half-open
byte range in the data) and the data. The `safetensors` package hands out each tensor with a
storage of its own and writes only what is whole in memory; here neighbours share the mapping's
storage, so that merged weights can be views, and a converted model need never be whole in memory.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine.errors import ModelLoadError

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_MAX_HEADER_BYTES = 100_000_000
_ALIGNMENT = 64
"""Bytes. The data begins at a multiple of a cache line."""
_FLUSH_BYTES = 256 << 20
"""So much may be written before it is sent to the disk, which else begins only at the end."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor lies: bytes [start, end) of the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


class SafetensorsFile:
    """A safetensors file, mapped privately and read-only by convention. Safe to share."""

    def __init__(self, path: Path) -> None:
        """Maps the file. Raises ModelLoadError when it is missing or damaged."""
        self.path = path
        try:
            self.entries = _read_header(path)
            self._bytes = torch.from_file(
                str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8
            )
        except (OSError, RuntimeError) as error:
            raise ModelLoadError(f"The weight file {path} cannot be read: {error}.") from error

    def tensor(self, name: str) -> Tensor:
        """A view of the mapping (a copy where the file is not aligned for its dtype)."""
        entry = self.entries[name]
        piece = self._bytes[entry.start : entry.end]
        if entry.start % entry.dtype.itemsize:
            piece = piece.clone()
        return piece.view(entry.dtype).view(entry.shape)


def _read_header(path: Path) -> Mapping[str, TensorEntry]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER_BYTES):
            raise ModelLoadError(f"The weight file {path} is damaged: its header is cut.")
        raw = file.read(length)
    try:
        header = json.loads(raw)
        header.pop("__metadata__", None)
        entries = {name: _entry(name, fields, 8 + length, path) for name, fields in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelLoadError(f"The weight file {path} is damaged: {error!r}.") from error
    for name, entry in entries.items():
        if not 8 + length <= entry.start <= entry.end <= size:
            raise ModelLoadError(f"The weight file {path} is cut: it lacks data of {name!r}.")
    return entries


def _entry(name: str, fields: Mapping[str, object], data_start: int, path: Path) -> TensorEntry:
    dtype = _DTYPES.get(str(fields["dtype"]))
    if dtype is None:
        raise ModelLoadError(
            f"The tensor {name!r} in {path} has the dtype {fields['dtype']!r}, "
            "which is not supported."
        )
    shape = tuple(int(n) for n in fields["shape"])  # type: ignore[attr-defined]
    start, end = (int(n) for n in fields["data_offsets"])  # type: ignore[attr-defined]
    if end - start != math.prod(shape) * dtype.itemsize:
        raise ModelLoadError(f"The tensor {name!r} in {path} has a size that is not its shape's.")
    return TensorEntry(dtype, shape, data_start + start, data_start + end)


class SafetensorsWriter:
    """Writes a safetensors file whose tensors are put in later, in any order and from several
    threads. Tensors lie in the order of `shapes`, all in one dtype."""

    def __init__(
        self, path: Path, shapes: Iterable[tuple[str, tuple[int, ...]]], dtype: torch.dtype
    ) -> None:
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        ranges = {}
        end = 0
        for name, shape in shapes:
            start, end = end, end + math.prod(shape) * dtype.itemsize
            ranges[name] = (start, end)
            header[name] = {
                "dtype": _DTYPE_NAMES[dtype],
                "shape": list(shape),
                "data_offsets": [start, end],
            }
        raw = json.dumps(header, separators=(",", ":")).encode()
        raw += b" " * (-(8 + len(raw)) % _ALIGNMENT)
        self._dtype = dtype
        self._ranges = ranges
        self._data_start = 8 + len(raw)
        self._unflushed_bytes = 0
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        try:
            self._write(len(raw).to_bytes(8, "little") + raw, 0)
            os.truncate(self._file, self._data_start + end)
        except OSError:
            os.close(self._file)
            raise

    def put(self, name: str, tensor: Tensor) -> None:
        """Writes one tensor, cast to the file's dtype. Raises OSError."""
        start, end = self._ranges[name]
        raw = tensor.to("cpu", self._dtype).contiguous().view(-1).view(torch.uint8)
        if raw.numel() != end - start:
            raise ValueError(f"{name} has {raw.numel()} bytes, announced were {end - start}")
        self._write(raw.numpy().data, self._data_start + start)
        with self._lock:
            self._unflushed_bytes += end - start
            must_flush = self._unflushed_bytes >= _FLUSH_BYTES
            if must_flush:
                self._unflushed_bytes = 0
        if must_flush:
            os.fdatasync(self._file)

    def sync(self) -> None:
        """Waits until the data is on the disk."""
        os.fsync(self._file)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def _write(self, data: bytes | memoryview, offset: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._file, view, offset)
            view, offset = view[written:], offset + written
