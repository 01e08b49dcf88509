"""Measures what choosing tokens costs a step on an NVIDIA GPU, by kind of request.

    python -m scripts.bench_gpu_sampler [--vocabulary 151936] [--rows 1 32 256]

Prints a Markdown table: microseconds a step, the median over replays of a CUDA graph that holds
several steps; for torch's own calls and our sampler in torch, which waits for the device, eager
calls. Logits are bfloat16: flat ones are normal; peaked ones have 40 likely tokens besides, about
as a language model gives them."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from engine.execution.device_sampler import DeviceSampler, SampledRows
from engine.execution.sampler import Sampler
from engine.scheduling.scheduler_output import ScheduledSequence
from engine.scheduling.sequence import Sequence
from engine.types import GenerationRequest, RequestId, SamplingParams

KINDS = {
    "greedy": SamplingParams(temperature=0.0),
    "temperature 0.6": SamplingParams(temperature=0.6),
    "temperature 1": SamplingParams(),
    "top-k 50, top-p 0.9": SamplingParams(temperature=0.7, top_k=50, top_p=0.9),
    "top-p 0.95": SamplingParams(top_p=0.95),
    "min-p 0.05": SamplingParams(min_p=0.05),
    "greedy, penalties": SamplingParams(temperature=0.0, presence_penalty=0.5),
    "greedy, log probabilities": SamplingParams(temperature=0.0, logprobs=5),
}
STEPS_PER_GRAPH = 10


def make_items(params: SamplingParams, num_rows: int) -> list[ScheduledSequence]:
    items = []
    for row in range(num_rows):
        request = GenerationRequest(RequestId(f"r{row}"), tuple(range(200)), params)
        sequence = Sequence(request, arrival_s=0.0, seed=row)
        items.append(ScheduledSequence(sequence, 199, 1, samples=True))
    return items


def graph_us(step: Callable[[], object], num_replays: int = 15) -> float:
    """Microseconds of one `step`, which is captured."""
    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(STEPS_PER_GRAPH):
            step()
    times: list[float] = []
    for _ in range(num_replays):
        began = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        ended = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        began.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        times.append(began.elapsed_time(ended) * 1e3 / STEPS_PER_GRAPH)
    return statistics.median(times[2:])


def eager_us(step: Callable[[], object], num_calls: int = 5) -> float:
    times = []
    for _ in range(num_calls + 2):
        torch.cuda.synchronize()
        began_s = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began_s) * 1e6)
    return statistics.median(times[2:])


def torch_draw(logits: Tensor) -> Tensor:
    """What `torch.multinomial` does for one draw, without its checks, which cannot be captured."""
    probs = (logits.float() / 0.6).softmax(dim=1)
    return probs.div_(torch.empty_like(probs).exponential_()).argmax(dim=1)


def measure(
    sampler: DeviceSampler, out: SampledRows, params: SamplingParams, logits: Tensor
) -> float:
    """Microseconds of a step of the kernels."""
    num_rows = len(logits)
    for slot, item in enumerate(make_items(params, num_rows)):
        sampler.enter(slot, item.sequence)
    sampler.upload()
    slots = torch.arange(num_rows, dtype=torch.int32, device=logits.device)
    positions, ones = torch.full_like(slots, 199), torch.ones_like(slots)
    last_tokens = torch.zeros_like(out.tokens)
    return graph_us(lambda: sampler.launch(logits, slots, positions, ones, last_tokens, out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32, 256])
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("needs a CUDA device")
    device = torch.device("cuda")
    most = max(options.rows)
    out = SampledRows(most + 1, device)
    sampler = DeviceSampler(
        vocab_size=options.vocabulary, num_slots=most, max_rows=most, device=device
    )
    chance = torch.Generator(device).manual_seed(0)
    flat = torch.randn(most, options.vocabulary, generator=chance, device=device) * 3
    peaked = flat.clone()
    peaked[:, :40] += 16.0
    cases = {
        f"{size} {name}": logits[:size].to(torch.bfloat16)
        for size in options.rows
        for name, logits in (("flat", flat), ("peaked", peaked))
    }
    began_s = time.perf_counter()
    say(f"\n{torch.cuda.get_device_name()}, {options.vocabulary} tokens; µs a step\n")
    say("| rows | " + " | ".join(cases) + " |\n| --- " + "| --- " * len(cases) + "|")
    for name, params in KINDS.items():
        row(name, [measure(sampler, out, params, logits) for logits in cases.values()])
    all_cases = list(cases.values())
    row("torch: argmax", [graph_us(partial(torch.argmax, one, dim=1)) for one in all_cases])
    row("torch: softmax, draw", [graph_us(partial(torch_draw, one)) for one in all_cases])
    for name in ("greedy", "temperature 0.6", "top-k 50, top-p 0.9"):
        times = []
        for logits in all_cases:
            items = make_items(KINDS[name], len(logits))
            times.append(eager_us(partial(Sampler().sample, logits.float(), items)))
        row(f"Sampler in torch: {name}", times)
    say(f"\n{time.perf_counter() - began_s:.0f} s in all")


def row(name: str, values: list[float]) -> None:
    say(f"| {name} | " + " | ".join(f"{value:.1f}" for value in values) + " |")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
