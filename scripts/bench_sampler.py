"""Measures what choosing tokens costs a step, by kind of request, over random logits.

    .venv/bin/python -m scripts.bench_sampler [--rows 16] [--vocabulary 151936] [--threads 1]

Prints a Markdown table: CPU milliseconds of one step, the fastest and the median of `--rounds`. The
logits are normal with a peak of 40 tokens, about as broad as a small model's. Each round is the
first step of new requests, whose prompts of 600 tokens the penalties must count."""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch

from engine.execution.sampler import Sampler
from engine.scheduling.scheduler_output import ScheduledSequence
from engine.scheduling.sequence import Sequence
from engine.types import GenerationRequest, RequestId, SamplingParams

KINDS = {
    "greedy": SamplingParams(temperature=0.0),
    "greedy, penalties": SamplingParams(
        temperature=0.0, presence_penalty=0.5, repetition_penalty=1.1
    ),
    "greedy, 5 log probabilities": SamplingParams(temperature=0.0, logprobs=5),
    "random": SamplingParams(),
    "random, top-p": SamplingParams(temperature=0.7, top_p=0.9),
    "random, top-k": SamplingParams(temperature=0.7, top_k=40),
    "random, all filters": SamplingParams(temperature=0.7, top_k=40, top_p=0.9, min_p=0.05),
    "random, penalties": SamplingParams(presence_penalty=0.5, repetition_penalty=1.1),
}
NUM_PROMPT_TOKENS = 600


def measure(params: SamplingParams, logits: torch.Tensor, num_rounds: int) -> list[float]:
    """CPU seconds of each round; every round draws with other seeds."""
    sampler = Sampler(eos_token_ids=(0,))
    prompt = tuple(token_id * 37 % logits.shape[1] for token_id in range(NUM_PROMPT_TOKENS))
    times = []
    for round_ in range(num_rounds):
        items = []
        for row in range(len(logits)):
            request = GenerationRequest(RequestId(f"r{row}"), prompt, params)
            sequence = Sequence(request, arrival_s=0.0, seed=row + round_ * len(logits))
            items.append(ScheduledSequence(sequence, len(prompt) - 1, 1, samples=True))
        began = time.process_time()
        sampler.sample(logits, items)
        times.append(time.process_time() - began)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    chance = torch.Generator().manual_seed(0)
    logits = torch.randn(options.rows, options.vocabulary, generator=chance) * 2.5
    logits[:, :40] += 14.0
    say(f"{options.rows} rows, {options.vocabulary} tokens, {options.threads} threads")
    say("\n| requests | fastest, ms | median, ms |\n| --- | --- | --- |")
    for name, params in KINDS.items():
        times = measure(params, logits, options.rounds)
        say(f"| {name} | {min(times) * 1e3:.2f} | {statistics.median(times) * 1e3:.2f} |")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
