"""`GGUFTensors`: the tensors of a GGUF file under their Hugging Face names, one projection at a
time as the decoder asks for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from engine.errors import ModelLoadError
from engine.models.blocks import Blocks
from engine.models.gguf_config import LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS
from engine.models.gguf_file import GGUFFile

_TOP_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
_NORMS_ON_BOTH_SIDES = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_EXPERTS = {
    "ffn_gate_exps": "gate_proj",
    "ffn_up_exps": "up_proj",
    "ffn_down_exps": "down_proj",
}
_INTERLEAVED = ("llama", "smollm3")
"""Files of these architectures keep each head's pairs (i, i + D/2) as neighbours."""
_GEMMAS = ("gemma", "gemma2", "gemma3")
"""Their files keep what norms are multiplied with; the model's weights are less by one."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows [start, start + rows) of the tensor `stored`, seen as a matrix, in the form `shape`.
    `num_heads` is not 0 where rows of each head are interleaved."""

    stored: str
    start: int
    shape: tuple[int, ...]
    num_heads: int = 0

    @property
    def rows(self) -> int:
        """Rows of the matrix; one for a vector."""
        return 1 if len(self.shape) == 1 else self.shape[0]


class GGUFTensors:
    """A `TensorSource` over a GGUF file; each read turns the whole tensor into float32."""

    def __init__(self, file: GGUFFile, config: Mapping[str, Any]) -> None:
        """`config` is what `gguf_config` made. Raises ModelLoadError for an unknown tensor."""
        self._file = file
        self._config = config
        self._architecture = str(file.metadata["general.architecture"])
        self._parts: dict[str, _Part] = {}
        for stored in file.tensors:
            if stored not in (ROPE_FACTORS, LONG_FACTORS, SHORT_FACTORS):
                self._parts.update(self._parts_of(stored))

    @property
    def names(self) -> Collection[str]:
        return self._parts.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._parts[name].shape

    def origin(self, name: str) -> str:
        return self._file.path.name

    def blocks(self, name: str) -> Blocks:
        """The tensor as the file has it. Row i of the model's tensor is row `row_map[i]`."""
        part = self._parts[name]
        kind, raw = self._file.raw(part.stored)
        stored_rows = self._file.num_rows(part.stored)
        rows = raw.reshape(stored_rows, -1)[part.start : part.start + part.rows]
        row_map = None
        if part.num_heads:
            row_map = torch.from_numpy(_separate_pairs(np.arange(part.rows), part.num_heads))
        return Blocks(int(kind), torch.from_numpy(rows.reshape(-1)), row_map)

    def tensor(self, name: str) -> torch.Tensor:
        part = self._parts[name]
        values = self._file.dequantize(part.stored, part.start, part.rows).reshape(part.shape)
        if part.num_heads:
            values = _separate_pairs(values, part.num_heads)
        if self._architecture in _GEMMAS and part.stored.endswith("norm.weight"):
            values = values - 1
        return torch.from_numpy(values)

    def _parts_of(self, stored: str) -> Iterator[tuple[str, _Part]]:
        stem, _, ending = stored.rpartition(".")
        shape = self._file.tensors[stored].shape
        if stem in _TOP_NAMES:
            yield f"{_TOP_NAMES[stem]}.{ending}", _Part(stored, 0, shape)
            return
        _, number, kind = [*stem.split("."), "", ""][:3]
        layer = f"model.layers.{number}."
        merged = self._merged(kind, shape[0])
        if kind in _EXPERTS and len(shape) == 3:
            for expert in range(shape[0]):
                name = f"{layer}mlp.experts.{expert}.{_EXPERTS[kind]}.{ending}"
                yield name, _Part(stored, expert * shape[1], shape[1:])
        elif merged:
            start = 0
            if len(shape) != 2 or sum(merged.values()) != shape[0]:
                raise self._unknown(stored)
            for name, rows in merged.items():
                yield f"{layer}{name}.{ending}", _Part(stored, start, (rows, shape[1]))
                start += rows
        elif kind in (names := self._layer_names()):
            if kind == "ffn_gate_inp_shexp":
                shape = (1, shape[-1])  # kept as a vector
            yield f"{layer}{names[kind]}.{ending}", _Part(stored, 0, shape, self._num_heads(kind))
        else:
            raise self._unknown(stored)

    def _layer_names(self) -> Mapping[str, str]:
        if self._architecture in ("gemma2", "gemma3"):
            return {**_LAYER_NAMES, **_NORMS_ON_BOTH_SIDES}
        return _LAYER_NAMES

    def _merged(self, kind: str, rows: int) -> dict[str, int]:
        if self._architecture != "phi3":
            return {}
        if kind == "ffn_up":
            return {"mlp.gate_proj": rows // 2, "mlp.up_proj": rows // 2}
        if kind == "attn_qkv":
            config = self._config
            kv_rows = config["num_key_value_heads"] * config["head_dim"]
            q_rows = config["num_attention_heads"] * config["head_dim"]
            return {
                "self_attn.q_proj": q_rows,
                "self_attn.k_proj": kv_rows,
                "self_attn.v_proj": kv_rows,
            }
        return {}

    def _num_heads(self, kind: str) -> int:
        if self._architecture not in _INTERLEAVED:
            return 0
        heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
        return int(self._config[heads[kind]]) if kind in heads else 0

    def _unknown(self, stored: str) -> ModelLoadError:
        return ModelLoadError(f"{self._file.path} holds a tensor of unknown meaning: {stored!r}.")


def _separate_pairs(values: np.ndarray[Any, Any], num_heads: int) -> np.ndarray[Any, Any]:
    """Rows of each head from the order 0, D/2, 1, D/2 + 1, … to 0, 1, …, D - 1."""
    pairs = values.reshape(num_heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
