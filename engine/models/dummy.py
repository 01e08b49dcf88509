"""Stand-ins for benchmarks: random weights for a configuration, and a tokenizer of bytes."""

from __future__ import annotations

import json
import zlib

import torch
from torch import Tensor

from engine.models.weights import PlainWeights
from engine.text.tokenizer import BYTE_OF_CHAR, HFTokenizer

_SCALE = 0.02
_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class RandomWeights(PlainWeights):
    """Implements `Weights`: makes up each tensor that is asked for. The same name gives the same
    values."""

    def __init__(self, *, dtype: torch.dtype, device: torch.device, seed: int = 0) -> None:
        self._dtype = dtype
        self._device = device
        self._seed = seed

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Norms are ones, everything else is normal with a deviation of 0.02."""
        if name.endswith("norm.weight"):
            return torch.ones(shape, dtype=self._dtype, device=self._device)
        generator = torch.Generator(self._device)
        generator.manual_seed(zlib.crc32(name.encode()) + (self._seed << 32))
        values = torch.empty(shape, dtype=self._dtype, device=self._device)
        return values.normal_(0.0, _SCALE, generator=generator)

    def claim(self, name: str, shape: tuple[int, ...]) -> None:
        """Nothing to do: every tensor is there."""

    def skip(self, name: str) -> None:
        """Nothing to do: what is not asked for is not made."""

    def finish(self) -> None:
        """Nothing to do: nothing can be left over."""


def byte_level_tokenizer() -> HFTokenizer:
    """One token a byte, three control tokens (ids 256 to 258) and a ChatML template."""
    vocabulary = dict(BYTE_OF_CHAR)
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
