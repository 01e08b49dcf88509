"""The GGUF format: metadata and a table of quantized tensors in one file.

The header is read here, because the `gguf` package's reader spends seconds on a large
vocabulary; its `dequantize` is what turns blocks into numbers."""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.config_fields import ConfigFields

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
_CHUNK_ELEMENTS = 1 << 18
"""Blocks are turned into numbers in pieces that stay in the processor's cache."""

SUPPORTED_TYPES = frozenset(
    {
        GGMLQuantizationType.F32,
        GGMLQuantizationType.F16,
        GGMLQuantizationType.BF16,
        GGMLQuantizationType.Q4_0,
        GGMLQuantizationType.Q4_1,
        GGMLQuantizationType.Q5_0,
        GGMLQuantizationType.Q5_1,
        GGMLQuantizationType.Q8_0,
        GGMLQuantizationType.Q2_K,
        GGMLQuantizationType.Q3_K,
        GGMLQuantizationType.Q4_K,
        GGMLQuantizationType.Q5_K,
        GGMLQuantizationType.Q6_K,
    }
)


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """A tensor's kind, its shape (rows first), and its bytes [start, end) in the file."""

    type: GGMLQuantizationType
    shape: tuple[int, ...]
    start: int
    end: int


class GGUFFile:
    """A mapped GGUF file. `metadata` holds plain values and lists. Safe to share."""

    def __init__(self, path: Path) -> None:
        """Raises ModelLoadError for a missing or damaged file, UnsupportedModelError for a
        kind of quantization that cannot be read."""
        self.path = path
        self.metadata: Mapping[str, Any]
        self.tensors: Mapping[str, GGUFTensor]
        try:
            with path.open("rb") as file:
                # Private: torch takes no views of memory that it could not write to.
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            cursor = _Cursor(self._map)
            self._read_header(cursor)
        except (OSError, ValueError, struct.error, IndexError, KeyError, OverflowError) as error:
            raise ModelLoadError(f"{path} is not a whole GGUF file: {error}.") from error

    def dequantize(
        self, name: str, start: int = 0, num_rows: int | None = None
    ) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The tensor `name` in float32, or, with `num_rows`, that many rows of it from `start` on
        as a matrix. Releases the GIL for most of its time."""
        tensor = self.tensors[name]
        columns = tensor.shape[-1]
        raw = self.raw(name)[1].reshape(self.num_rows(name), -1)
        if num_rows is not None:
            raw = raw[start : start + num_rows]
        out = np.empty((raw.shape[0], columns), np.float32)
        step = max(1, _CHUNK_ELEMENTS // columns)
        for first in range(0, raw.shape[0], step):
            out[first : first + step] = dequantize(raw[first : first + step], tensor.type)
        return out.reshape(tensor.shape) if num_rows is None else out

    def num_rows(self, name: str) -> int:
        """How many rows the tensor has, seen as a matrix: all its dimensions but the last."""
        return math.prod(self.tensors[name].shape[:-1])

    def raw(self, name: str) -> tuple[GGMLQuantizationType, np.ndarray[Any, np.dtype[np.uint8]]]:
        """The tensor's kind and its bytes, a view of the mapped file."""
        tensor = self.tensors[name]
        size = tensor.end - tensor.start
        return tensor.type, np.frombuffer(self._map, np.uint8, size, tensor.start)

    def _read_header(self, cursor: _Cursor) -> None:
        if cursor.take(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version, num_tensors, num_fields = cursor.unpack("IQQ")
        if version not in (2, 3):
            raise UnsupportedModelError(f"{self.path}: GGUF version {version} is not supported.")
        metadata = {}
        for _ in range(num_fields):
            key = cursor.string()
            metadata[key] = cursor.value(cursor.unpack("I")[0])
        table = [self._read_entry(cursor) for _ in range(num_tensors)]
        fields = ConfigFields(metadata, str(self.path))
        alignment = fields.size("general.alignment", 32)
        data_start = -(-cursor.position // alignment) * alignment
        self.metadata = metadata
        self.tensors = {
            name: GGUFTensor(kind, shape, data_start + start, data_start + start + size)
            for name, kind, shape, start, size in table
        }
        for name, tensor in self.tensors.items():
            if tensor.end > len(self._map):
                raise ModelLoadError(f"{self.path} is cut: it lacks data of the tensor {name!r}.")
            if (tensor.start - data_start) % alignment:
                raise ModelLoadError(
                    f"{self.path} is damaged: the tensor {name!r} does not begin at a multiple of "
                    f"{alignment} bytes."
                )

    def _read_entry(
        self, cursor: _Cursor
    ) -> tuple[str, GGMLQuantizationType, tuple[int, ...], int, int]:
        name = cursor.string()
        (num_dims,) = cursor.unpack("I")
        shape = tuple(reversed(cursor.unpack(f"{num_dims}Q")))
        code, start = cursor.unpack("IQ")
        known = code in GGMLQuantizationType.__members__.values()
        kind = GGMLQuantizationType(code) if known else None
        if kind is None or kind not in SUPPORTED_TYPES:
            supported = ", ".join(sorted(item.name for item in SUPPORTED_TYPES))
            raise UnsupportedModelError(
                f"The tensor {name!r} in {self.path} is quantized as "
                f"{kind.name if kind is not None else code}; supported are: {supported}."
            )
        block, block_bytes = GGML_QUANT_SIZES[kind]
        columns = shape[-1] if shape else 1
        if columns % block:
            raise ModelLoadError(
                f"{self.path} is damaged: the tensor {name!r} is quantized as {kind.name}, in "
                f"blocks of {block}, and has {columns} columns."
            )
        return name, kind, shape, start, math.prod(shape) // block * block_bytes


class _Cursor:
    """Reads little-endian values one after the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self._data):
            raise ValueError("its header is cut")
        piece = self._data[self.position : end]
        self.position = end
        return piece

    def unpack(self, form: str) -> tuple[Any, ...]:
        form = "<" + form
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def string(self) -> str:
        return self.take(self.unpack("Q")[0]).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            item_kind, length = self.unpack("IQ")
            if item_kind == _STRING:
                return self._strings(length)
            if item_kind == _ARRAY:
                return [self.value(item_kind) for _ in range(length)]
            return list(self.unpack(f"{length}{_SCALARS[item_kind]}"))
        return self.unpack(_SCALARS[kind])[0]

    def _strings(self, length: int) -> list[str]:
        # A vocabulary has several hundred thousand: worth a tight loop.
        data, position, read = self._data, self.position, struct.Struct("<Q").unpack_from
        strings = []
        for _ in range(length):
            start = position + 8
            position = start + read(data, position)[0]
            if position > len(data):
                raise ValueError("its header is cut")
            strings.append(data[start:position].decode("utf-8", "replace"))
        self.position = position
        return strings
