"""The native library: its functions with their types, and `NativeEngine`, which owns threads."""

from __future__ import annotations

import ctypes
import logging
import weakref
from collections.abc import Sequence
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.errors import EngineError
from engine.kernels.native.build import is_sound, library_path
from engine.kernels.native.structs import (
    GROUP_COLUMNS,
    TILE_ROWS,
    Batch,
    Cache,
    CacheView,
    Layer,
    Linear,
    Model,
    Segment,
)


@cache
def load_library() -> ctypes.CDLL | None:
    """The library, or None where it was not built, or was damaged since. Its calls release the
    GIL."""
    path = library_path()
    if not path.exists():
        return None
    if not is_sound(path):
        logger.warning(
            "The native kernels in %s are damaged and not used; scripts/setup builds them anew.",
            path,
        )
        return None
    return open_library(path)


def open_library(path: Path) -> ctypes.CDLL:
    """The library at `path`, its functions declared. Raises OSError."""
    library = ctypes.CDLL(str(path))
    status = c_int32
    _declare(library, "lectern_layout", [c_void_p])
    _declare(library, "lectern_can_attend", [c_int64], c_int32)
    _declare(library, "lectern_open", [c_int32], c_void_p)
    _declare(library, "lectern_close", [c_void_p])
    _declare(
        library,
        "lectern_step",
        [c_void_p, POINTER(Model), POINTER(Cache), POINTER(Batch), c_void_p],
        status,
    )
    _declare(
        library,
        "lectern_multiply",
        [c_void_p, POINTER(Linear), c_void_p, c_int64, c_void_p],
        status,
    )
    _declare(
        library,
        "lectern_attend",
        [c_void_p, POINTER(CacheView), POINTER(Batch), c_int64]
        + [c_void_p, c_int64] * 3
        + [c_float, c_int64, c_void_p],
        status,
    )
    _declare(library, "lectern_packed_bytes", [c_int32, c_int64, c_int64], c_int64)
    _declare(library, "lectern_kind_of_source", [c_int32], c_int32)
    packing = [c_int32, c_void_p, c_int64, c_int64]
    _declare(library, "lectern_pack_blocks", [*packing, c_void_p, c_void_p, c_int32], status)
    _declare(library, "lectern_pack_floats", [*packing, c_void_p, c_int32], status)
    _declare(library, "lectern_unpack_rows", [POINTER(Linear), c_void_p, c_int64, c_void_p])
    _declare(library, "lectern_quantize", [c_void_p, c_int64, c_int64] + [c_void_p] * 3)
    _check_layout(library)
    return library


logger = logging.getLogger(__name__)


class NativeError(EngineError):
    """A native call failed."""


_FAILURES = {
    1: "The native kernels ran out of memory.",
    2: "The native kernels were given an argument that they do not know.",
    3: "The native kernels failed.",
}


class NativeEngine:
    """Threads and memory for native calls. Owned by the engine thread: one call at a time."""

    def __init__(self, library: ctypes.CDLL, num_threads: int) -> None:
        """Raises NativeError if no thread or memory is to be had."""
        if num_threads < 1:
            raise ValueError(f"num_threads must be at least 1, not {num_threads}")
        self.library = library
        self.num_threads = num_threads
        handle = library.lectern_open(num_threads)
        if not handle:
            raise NativeError(f"{num_threads} threads could not be started.")
        self._handle = c_void_p(handle)
        finalizer = weakref.finalize(self, library.lectern_close, self._handle)
        # At the interpreter's end a step may still run: the system takes everything back.
        finalizer.atexit = False

    def step(self, model: Model, cache: Cache, batch: Batch, logits: Tensor) -> None:
        """A whole forward step; `logits` [samples, vocab] float32 is written."""
        check(self.library.lectern_step(self._handle, model, cache, batch, pointer(logits)))

    def multiply(self, linear: Linear, x: Tensor) -> Tensor:
        """[T, columns] → [T, rows], float32; the input is quantized to int8 on the way."""
        if x.shape[1] != linear.columns:
            raise ValueError(f"the input has {x.shape[1]} columns, the weight {linear.columns}")
        x = x.float().contiguous()
        out = torch.empty(x.shape[0], linear.rows)
        check(
            self.library.lectern_multiply(
                self._handle, linear, pointer(x), x.shape[0], pointer(out)
            )
        )
        return out

    def attend(
        self,
        cache: CacheView,
        batch: Batch,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float,
        window: int,
    ) -> Tensor:
        """See `Attention.attend`; float32, each token's heads lie one behind the other."""
        if {q.dtype, k.dtype, v.dtype} != {torch.float32}:
            raise ValueError("queries, keys and values must be float32")
        out = torch.empty(q.shape[0], q.shape[1] * q.shape[2])
        status = self.library.lectern_attend(
            self._handle,
            cache,
            batch,
            q.shape[1],
            pointer(q),
            q.stride(0),
            pointer(k),
            k.stride(0),
            pointer(v),
            v.stride(0),
            scale,
            window,
            pointer(out),
        )
        check(status)
        return out


def check(status: int) -> None:
    """Raises NativeError unless a call's status is that of success."""
    if status:
        raise NativeError(_FAILURES[status])


def pointer(tensor: Tensor) -> c_void_p:
    """The address of the tensor's first element."""
    return c_void_p(tensor.data_ptr())


def _check_layout(library: ctypes.CDLL) -> None:
    """That both sides mean the same by a structure: a wrong one would be silent corruption."""
    structures = (Segment, Linear, Layer, Model, Cache, CacheView, Batch)
    expected = [*map(ctypes.sizeof, structures), TILE_ROWS, GROUP_COLUMNS]
    found = (c_int64 * len(expected))()
    library.lectern_layout(found)
    if list(found) != expected:
        raise OSError(f"the native library's layout is {list(found)}, not {expected}")


def _declare(library: ctypes.CDLL, name: str, arguments: Sequence[Any], result: Any = None) -> None:
    function = getattr(library, name)
    function.argtypes = arguments
    function.restype = result
