"""The structures that cross into the native library, field for field as in its headers. A
structure holds addresses only: whoever makes one keeps what it points to."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from engine.execution.flat_step import FlatStep


TILE_ROWS = 16
"""packed.h: rows of a weight that lie together."""
GROUP_COLUMNS = 32
"""packed.h: columns that share a scale."""


class Segment(Structure):
    """packed.h: rows of one kind."""

    _fields_ = (("data", c_void_p), ("rows", c_int64), ("kind", c_int32))


class Linear(Structure):
    """packed.h: weights of the same input, one below the other."""

    _fields_ = (
        ("segments", POINTER(Segment)),
        ("num_segments", c_int32),
        ("columns", c_int32),
        ("rows", c_int64),
        ("bias", c_void_p),
    )


class Layer(Structure):
    """decoder_step.h"""

    _fields_ = (
        ("input_norm", c_void_p),
        ("qk_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("qkv", Linear),
        ("output", Linear),
        ("gate_up", Linear),
        ("down", Linear),
        ("window", c_int64),
    )


class Model(Structure):
    """decoder_step.h"""

    _fields_ = (
        ("num_layers", c_int64),
        ("hidden_size", c_int64),
        ("intermediate_size", c_int64),
        ("num_heads", c_int64),
        ("num_kv_heads", c_int64),
        ("head_dim", c_int64),
        ("rotary_dim", c_int64),
        ("norm_eps", c_float),
        ("attention_scale", c_float),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("final_norm", c_void_p),
        ("embedding", Linear),
        ("head", Linear),
        ("layers", POINTER(Layer)),
    )


class Cache(Structure):
    """decoder_step.h: the cache of all layers."""

    _fields_ = (
        ("keys", c_void_p),
        ("values", c_void_p),
        ("layer_bytes", c_int64),
        ("is_half", c_int32),
        ("block_size", c_int32),
    )


class CacheView(Structure):
    """attention.h: the cache of one layer."""

    _fields_ = (
        ("keys", c_void_p),
        ("values", c_void_p),
        ("is_half", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("block_size", c_int32),
    )


class Batch(Structure):
    """decoder_step.h: a flat step."""

    _fields_ = (
        ("num_tokens", c_int64),
        ("num_spans", c_int64),
        ("num_samples", c_int64),
        ("token_ids", c_void_p),
        ("positions", c_void_p),
        ("slots", c_void_p),
        ("query_starts", c_void_p),
        ("num_queries", c_void_p),
        ("context_lens", c_void_p),
        ("block_starts", c_void_p),
        ("blocks", c_void_p),
        ("sample_rows", c_void_p),
    )


def batch_struct(step: FlatStep) -> Batch:
    """The step's arrays as the library reads them; they must outlive the structure."""
    return Batch(
        len(step.token_ids),
        len(step.query_starts),
        len(step.sample_rows),
        _address(step.token_ids),
        _address(step.positions),
        _address(step.slots),
        _address(step.query_starts),
        _address(step.num_queries),
        _address(step.context_lens),
        _address(step.block_starts),
        _address(step.blocks),
        _address(step.sample_rows),
    )


def _address(array: np.ndarray[Any, Any]) -> int:
    assert array.flags.c_contiguous
    assert array.dtype in (np.int64, np.int32)
    return int(array.ctypes.data)
