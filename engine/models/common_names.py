"""`CommonNames`: a checkpoint under the names of the common form, whatever its own are.

The decoder asks for one projection at a time (`self_attn.q_proj`, `mlp.experts.3.up_proj`).
Checkpoints that keep several in one tensor, or under other names, are presented in parts: views,
which lie side by side again when the decoder merges them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from torch import Tensor

from engine.models.config import ModelConfig
from engine.models.families import TEXT_PARTS
from engine.models.weights import TensorSource

_MIXTRAL = re.compile(r"(.*\.)block_sparse_moe\.(gate|experts\.\d+\.(?:w1|w2|w3))\.weight")
_MIXTRAL_PARTS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
_MERGED = re.compile(r"(.*\.)(qkv_proj|gate_up_proj)\.(weight|bias)")
_MERGED_EXPERTS = re.compile(r"(.*\.mlp\.experts\.)(gate_up_proj|down_proj)")

_TEXT_PART = re.compile(r"(?:model\.)?language_model\.(?:model\.)?(.*)")
_OTHER_PARTS = re.compile(r"(?:model\.)?(?:vision_tower|multi_modal_projector)\..*")

_Part = tuple[str, tuple[int | slice, ...]]
"""A stored tensor's name, and the index that gives the part."""


class CommonNames:
    """A `TensorSource` over another one."""

    def __init__(self, source: TensorSource, config: ModelConfig) -> None:
        self._source = source
        self._config = config
        self._parts: dict[str, _Part] = {}
        for stored in source.names:
            if config.architecture not in TEXT_PARTS:
                self._parts.update(self._parts_of(stored))
            elif match := _TEXT_PART.fullmatch(stored):
                name = match.group(1)
                name = name if name.startswith("lm_head.") else f"model.{name}"
                self._parts[name] = (stored, ())
            elif not _OTHER_PARTS.fullmatch(stored):
                self._parts[stored] = (stored, ())

    @property
    def names(self) -> Collection[str]:
        return self._parts.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        stored, index = self._parts[name]
        shape = self._source.shape(stored)
        kept = tuple(
            len(range(size)[part])
            for size, part in zip(shape, index, strict=False)
            if isinstance(part, slice)
        )
        return kept + shape[len(index) :]

    def origin(self, name: str) -> str:
        stored, _ = self._parts[name]
        return self._source.origin(stored)

    def tensor(self, name: str) -> Tensor:
        stored, index = self._parts[name]
        tensor = self._source.tensor(stored)
        return tensor[index] if index else tensor

    def _parts_of(self, stored: str) -> Iterator[tuple[str, _Part]]:
        if match := _MIXTRAL.fullmatch(stored):
            prefix, path = match.groups()
            head, _, last = path.rpartition(".")
            renamed = f"{head}.{_MIXTRAL_PARTS[last]}" if head else last
            yield f"{prefix}mlp.{renamed}.weight", (stored, ())
        elif match := _MERGED_EXPERTS.fullmatch(stored):
            prefix, kind = match.groups()
            num_experts, rows = self._source.shape(stored)[:2]
            for expert in range(num_experts):
                if kind == "down_proj":
                    yield f"{prefix}{expert}.down_proj.weight", (stored, (expert,))
                else:
                    for name, part in _halves(rows).items():
                        yield f"{prefix}{expert}.{name}.weight", (stored, (expert, part))
        elif match := _MERGED.fullmatch(stored):
            prefix, kind, ending = match.groups()
            rows = self._source.shape(stored)[0]
            parts = _halves(rows) if kind == "gate_up_proj" else self._qkv()
            for name, part in parts.items():
                yield f"{prefix}{name}.{ending}", (stored, (part,))
        else:
            yield stored, (stored, ())

    def _qkv(self) -> dict[str, slice]:
        config = self._config
        end_q = config.num_heads * config.head_dim
        end_k = end_q + config.num_kv_heads * config.head_dim
        return {
            "q_proj": slice(end_q),
            "k_proj": slice(end_q, end_k),
            "v_proj": slice(end_k, None),
        }


def _halves(rows: int) -> dict[str, slice]:
    return {"gate_proj": slice(rows // 2), "up_proj": slice(rows // 2, None)}
