"""What `transformers` answers on the same weights: the oracle for every model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def load_oracle(folder: Path) -> Any:
    """The model of `folder` in float32 with plain attention."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


def greedy(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    """`count` greedy tokens behind `prompt`, EOS ignored."""
    import torch

    token_ids = torch.tensor([list(prompt)])
    out: list[int] = []
    cache = None
    with torch.inference_mode():
        for _ in range(count):
            result = model(token_ids, cache=cache, use_cache=True)
            cache = result.cache
            token_ids = result.logits[:, -1].argmax(-1, keepdim=True)
            out.append(int(token_ids))
    return out


def next_tokens(model: Any, token_ids: Sequence[int], start: int) -> list[int]:
    """The most likely token after each of `token_ids[start:]`, from one forward pass without any
    cache. An answer is the greedy one if each of its tokens is the one expected there: then this
    says in one pass what `greedy` says in as many as there are tokens."""
    import torch

    with torch.inference_mode():
        logits = model(torch.tensor([list(token_ids)]), use_cache=False).logits[0, start:]
    return [int(token_id) for token_id in logits.argmax(-1)]


def load_gguf_oracle(path: Path) -> tuple[Any, Any]:
    """The model and the tokenizer that `transformers` makes of a GGUF file, in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    return model.eval(), tokenizer
