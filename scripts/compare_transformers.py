"""`transformers` as a contender: a child process that loads a model once and measures on demand.

It runs in bfloat16 where this CPU has products of it, else in float32, with fused attention.
Requests of a load are answered offline, in static batches: prompts are known before, padded on the
left, and every batch ends with its last sequence. Beside that, `transformers serve` can be asked.

A GGUF file is read from Lectern's converted copy, the same weights as a folder in Hugging Face's
form: the library itself takes a minute to read a larger one, and its server fails on it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from scripts.bench_work import Work, random_prompts
from scripts.compare_served import Load
from scripts.compare_worker import serve

CB_BLOCK_TOKENS = 256
"""Tokens in a block of its cache for continuous batching, if not told otherwise."""


def as_folder(path: Path, cache_dir: Path, dtype: Any) -> Path:
    """The model at `path` as a folder; of a GGUF file, the converted copy in `cache_dir`."""
    if path.is_dir():
        return path
    from engine.models.gguf_conversion import open_gguf

    open_gguf(path, cache_dir, dtype, lambda _sentence, _fraction: None)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return cache_dir / f"{digest}-{str(dtype).removeprefix('torch.')}"


def load(folder: Path, dtype: Any) -> Any:
    """The causal language model in `folder`, ready for inference."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return model.eval()


def can_serve() -> bool:
    """Whether `transformers serve` has the packages that it needs."""
    from transformers.utils.import_utils import is_serve_available

    return bool(is_serve_available())


def serve_command(facts: dict[str, Any], load: Load) -> list[str]:
    """The command that starts `transformers serve` with continuous batching, without its port.
    `facts` are the worker's. By default its cache takes most of the memory, and minutes to make;
    it gets what `load` needs and a fifth more."""
    num_tokens = load.num_together * load.tokens_per_slot
    num_blocks = -(-num_tokens * 6 // 5 // CB_BLOCK_TOKENS)
    return [
        *(str(Path(sys.executable).with_name("transformers")), "serve", facts["folder"]),
        *("--host", "127.0.0.1", "--device", "cpu", "--dtype", facts["dtype"]),
        *("--continuous-batching", "--cb-num-blocks", str(num_blocks)),
        *("--cb-max-batch-tokens", "512"),
    ]


def serve_body(facts: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """A chat request as `transformers serve` wants it: greedy, EOS ignored."""
    generation = {
        "do_sample": False,
        "max_new_tokens": body["max_tokens"],
        "eos_token_id": -1,
        "pad_token_id": 0,
    }
    return {
        "model": facts["folder"],
        "messages": body["messages"],
        "max_tokens": body["max_tokens"],
        "generation_config": json.dumps(generation),
    }


def measure(model: Any, work: Work, seed: int) -> dict[str, float]:
    """`tokens_per_s` of one run, as `Work` defines it."""
    import torch

    prompts = random_prompts(seed, work.num_sequences, work.context, model.config.vocab_size)
    token_ids = torch.tensor(prompts)
    mask = torch.ones_like(token_ids)
    with torch.inference_mode():
        if work.kind == "prefill":
            began_s = time.perf_counter()
            model(token_ids, use_cache=True, logits_to_keep=1)
            return {"tokens_per_s": token_ids.numel() / (time.perf_counter() - began_s)}
        if work.kind == "offline":
            for row, length in zip(mask, spread(work.num_sequences, work.context), strict=True):
                row[: work.context - length] = 0
            began_s = time.perf_counter()
            token_s = generate(model, token_ids, mask, work.num_tokens)
            num_tokens = len(prompts) * work.num_tokens
            return {"tokens_per_s": num_tokens / (token_s[-1] - began_s)}
        token_s = generate(model, token_ids, mask, work.num_tokens + 1)
    num_tokens = len(prompts) * work.num_tokens
    return {"tokens_per_s": num_tokens / (token_s[-1] - token_s[0])}


def spread(count: int, longest: int) -> list[int]:
    """`count` lengths from half of `longest` to `longest`, in even steps."""
    return [longest - longest * index // (2 * max(1, count - 1)) for index in range(count)]


def generate(model: Any, token_ids: Any, mask: Any, num_tokens: int) -> list[float]:
    """Generates exactly `num_tokens` greedy tokens a row; when each step's tokens were there."""
    token_s: list[float] = []

    def note(ids: Any, _scores: Any, **_: Any) -> Any:
        token_s.append(time.perf_counter())
        return ids.new_zeros(ids.shape[0], dtype=bool)

    model.generate(
        token_ids,
        attention_mask=mask,
        do_sample=False,
        min_new_tokens=num_tokens,  # keeps EOS away
        max_new_tokens=num_tokens,
        pad_token_id=0,
        stopping_criteria=[note],
    )
    return token_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--converted", type=Path, required=True, help="folder for copies")
    options = parser.parse_args()

    import torch

    from engine.models.linear import can_multiply_bfloat16_fast

    torch.set_num_threads(options.threads)
    dtype = torch.bfloat16 if can_multiply_bfloat16_fast() else torch.float32
    folder = as_folder(options.model, options.converted, dtype)
    model = load(folder, dtype)
    facts = {"dtype": str(dtype).removeprefix("torch."), "folder": str(folder)}
    serve(facts, lambda work, seed: measure(model, work, seed))


if __name__ == "__main__":
    main()
