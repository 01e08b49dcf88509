"""`transformers` with a shape's random weights: generation and a prompt's forward, as a child.

    python -m scripts.gpu_transformers FOLDER --batches 1 32

It runs with scaled dot product attention in eager mode, as it does without further choices, and
prints JSON: milliseconds a step by batch, and the tokens a second of a prompt.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from scripts.bench_work import random_prompts

PROMPT_TOKENS = 128


def build(folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
    """A model of `folder`'s configuration with weights of its own making."""
    from transformers import AutoConfig, AutoModelForCausalLM

    causal: Any = AutoModelForCausalLM
    config = AutoConfig.from_pretrained(folder)
    torch.manual_seed(0)
    with device:
        model = causal.from_config(config, dtype=dtype, attn_implementation="sdpa")
    return model.eval()


@torch.inference_mode()
def decode_ms(model: Any, batch: int, num_tokens: int) -> float:
    """Milliseconds a step of a static batch that generates greedily, prompts left out."""
    from scripts.compare_transformers import generate

    prompts = random_prompts(batch, batch, PROMPT_TOKENS, model.config.vocab_size)
    token_ids = torch.tensor(prompts, device=model.device)
    mask = torch.ones_like(token_ids)
    generate(model, token_ids, mask, 4)
    token_s = generate(model, token_ids, mask, num_tokens)
    return 1000 * (token_s[-1] - token_s[0]) / (len(token_s) - 1)


@torch.inference_mode()
def prefill_rate(model: Any, num_tokens: int) -> float:
    """Tokens a second of one prompt through the model; the better of two runs after one."""
    times = []
    for seed in range(3):
        (prompt,) = random_prompts(seed, 1, num_tokens, model.config.vocab_size)
        token_ids = torch.tensor([prompt], device=model.device)
        _synchronize(model.device)
        began_s = time.perf_counter()
        model(token_ids, use_cache=True, logits_to_keep=1)
        _synchronize(model.device)
        times.append(time.perf_counter() - began_s)
    return num_tokens / min(times[1:])


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--prefill", type=int, default=3500)
    options = parser.parse_args()
    is_cuda = torch.cuda.is_available()
    device = torch.device("cuda" if is_cuda else "cpu")
    model = build(options.folder, device, torch.bfloat16 if is_cuda else torch.float32)
    figures: dict[str, float] = {
        f"decode-{batch}": decode_ms(model, batch, options.tokens) for batch in options.batches
    }
    figures["prefill"] = prefill_rate(model, options.prefill)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
