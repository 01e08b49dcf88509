"""The native library: its functions with their types, and `NativeEngine`, which owns threads."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from functools import cache
from typing import Any

import torch
from torch import Tensor

from engine.kernels.native.build import library_path
from engine.kernels.native.structs import Batch, Cache, CacheView, Linear, Model


@cache
def load_library() -> ctypes.CDLL | None:
    """The library, or None where it was not built. Its calls release the GIL."""
    path = library_path()
    if not path.exists():
        return None
    library = ctypes.CDLL(str(path))
    _declare(library, "lectern_open", [c_int32], c_void_p)
    _declare(library, "lectern_close", [c_void_p])
    _declare(
        library,
        "lectern_step",
        [c_void_p, POINTER(Model), POINTER(Cache), POINTER(Batch), c_void_p],
    )
    _declare(library, "lectern_multiply", [c_void_p, POINTER(Linear), c_void_p, c_int64, c_void_p])
    _declare(
        library,
        "lectern_attend",
        [c_void_p, POINTER(CacheView), POINTER(Batch), c_int64]
        + [c_void_p, c_int64] * 3
        + [c_float, c_int64, c_void_p],
    )
    _declare(library, "lectern_packed_bytes", [c_int32, c_int64, c_int64], c_int64)
    _declare(library, "lectern_kind_of_source", [c_int32], c_int32)
    packing = [c_int32, c_void_p, c_int64, c_int64]
    _declare(library, "lectern_pack_blocks", [*packing, c_void_p, c_void_p, c_int32])
    _declare(library, "lectern_pack_floats", [*packing, c_void_p, c_int32])
    _declare(library, "lectern_unpack_rows", [POINTER(Linear), c_void_p, c_int64, c_void_p])
    _declare(library, "lectern_quantize", [c_void_p, c_int64, c_int64] + [c_void_p] * 3)
    return library


class NativeEngine:
    """Threads and memory for native calls. Owned by the engine thread: one call at a time."""

    def __init__(self, library: ctypes.CDLL, num_threads: int) -> None:
        self.library = library
        self.num_threads = num_threads
        self._handle = c_void_p(library.lectern_open(num_threads))

        # At the interpreter's end too, when modules are already gone.
        weakref.finalize(self, library.lectern_close, self._handle)

    def step(self, model: Model, cache: Cache, batch: Batch, logits: Tensor) -> None:
        """A whole forward step; `logits` [samples, vocab] float32 is written."""
        self.library.lectern_step(self._handle, model, cache, batch, pointer(logits))

    def multiply(self, linear: Linear, x: Tensor) -> Tensor:
        """[T, columns] → [T, rows], float32; the input is quantized to int8 on the way."""
        x = x.float().contiguous()
        out = torch.empty(x.shape[0], linear.rows)
        self.library.lectern_multiply(self._handle, linear, pointer(x), x.shape[0], pointer(out))
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
        out = torch.empty(q.shape[0], q.shape[1] * q.shape[2])
        self.library.lectern_attend(
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
        return out


def pointer(tensor: Tensor) -> c_void_p:
    """The address of the tensor's first element."""
    return c_void_p(tensor.data_ptr())


def _declare(library: ctypes.CDLL, name: str, arguments: Sequence[Any], result: Any = None) -> None:
    function = getattr(library, name)
    function.argtypes = arguments
    function.restype = result
