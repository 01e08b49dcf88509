"""Stand-ins for benchmarks: random weights for a configuration, and a tokenizer of bytes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from engine.models.weights import WeightReader
from engine.text.tokenizer import BYTE_OF_CHAR, HFTokenizer

_SCALE = 0.02
_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class _NoTensors:
    names: Mapping[str, Any] = {}

    def shape(self, name: str) -> tuple[int, ...]:
        raise KeyError(name)

    origin = tensor = shape


class RandomWeights(WeightReader):
    """Makes up each tensor that is asked for. The same name gives the same values."""

    def __init__(self, *, dtype: torch.dtype, device: torch.device, seed: int = 0) -> None:
        super().__init__(_NoTensors(), dtype=dtype, device=device)
        self._seed = seed

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Norms are ones, everything else is normal with a deviation of 0.02."""
        if name.endswith("norm.weight"):
            return torch.ones(shape, dtype=self._dtype, device=self._device)
        generator = torch.Generator(self._device)
        generator.manual_seed(zlib.crc32(name.encode()) + (self._seed << 32))
        values = torch.empty(shape, dtype=self._dtype, device=self._device)
        return values.normal_(0.0, _SCALE, generator=generator)


def byte_level_tokenizer() -> HFTokenizer:
    """One token a byte, three control tokens (ids 256 to 258) and a ChatML template."""
    vocabulary = {char: byte for char, byte in BYTE_OF_CHAR.items()}
    vocabulary.update({text: 256 + index for index, text in enumerate(_CONTROL)})
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    content = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": 256 + index,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for index, text in enumerate(_CONTROL)
        ],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    config = {"eos_token": "<|im_end|>", "chat_template": _TEMPLATE}
    return HFTokenizer(json.dumps(content), config, eos_token_ids=(256, 258))
