"""The work that an engine on a GPU is measured with, and what others were measured to do."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from engine.types import GenerationRequest, RequestId, SamplingParams

Kind = Literal["decode", "mix", "prefill", "shared"]

SHORTEST = 100
"""The shortest prompt and answer of a mix, in tokens."""
_LENGTHS_SEED = 20_261


@dataclass(frozen=True, slots=True)
class GpuWork:
    """`num_sequences` requests that arrive at once, EOS ignored, of `prompt_tokens` random tokens
    each and `output_tokens` new ones. Of a `mix` these are the largest of lengths that are drawn
    evenly, always the same ones. The first `common_tokens` are the same in all prompts."""

    name: str
    title: str
    kind: Kind
    num_sequences: int
    prompt_tokens: int
    output_tokens: int
    common_tokens: int = 0
    temperature: float = 0.0

    def shortened(self) -> GpuWork:
        """The same in small, to see that everything runs, or to warm up."""
        return replace(
            self,
            title=f"in small: {self.title}",
            num_sequences=min(self.num_sequences, 4),
            prompt_tokens=min(self.prompt_tokens, 160),
            output_tokens=min(self.output_tokens, 120 if self.kind == "mix" else 8),
            common_tokens=min(self.common_tokens, 100),
        )

    def lengths(self) -> list[tuple[int, int]]:
        """Prompt and output tokens of each request."""
        if self.kind != "mix":
            return [(self.prompt_tokens, self.output_tokens)] * self.num_sequences
        generator = random.Random(_LENGTHS_SEED)
        return [
            (
                generator.randint(SHORTEST, self.prompt_tokens),
                generator.randint(SHORTEST, self.output_tokens),
            )
            for _ in range(self.num_sequences)
        ]

    def requests(self, seed: int, vocab_size: int) -> list[GenerationRequest]:
        """Other seeds and other works give other prompts, with no prefix in common: the cache has
        nothing of those before."""
        generator = random.Random(f"{self.name} {seed}")

        def tokens(count: int) -> list[int]:
            return generator.choices(range(vocab_size), k=count)

        common = tokens(self.common_tokens)
        return [
            GenerationRequest(
                RequestId(f"{self.name}-{seed}-{index}"),
                (*common, *tokens(prompt - len(common))),
                SamplingParams(
                    temperature=self.temperature,
                    max_tokens=output,
                    ignore_eos=True,
                    seed=seed + index,
                ),
            )
            for index, (prompt, output) in enumerate(self.lengths())
        ]

    def figure(self, seconds: float) -> float:
        """What is told of a run of so many seconds, in `unit`. Of `decode`: the milliseconds a
        step would take if there were as many as an answer has tokens, prompts included."""
        match self.kind:
            case "decode":
                return 1000 * seconds / self.output_tokens
            case "mix":
                return sum(output for _, output in self.lengths()) / seconds
            case "prefill":
                return self.num_sequences * self.prompt_tokens / seconds
            case "shared":
                return seconds

    @property
    def unit(self) -> str:
        """What `figure` is counted in."""
        return {"decode": "ms", "mix": "tok/s", "prefill": "tok/s", "shared": "s"}[self.kind]

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.unit == "tok/s"

    def shown(self, value: float) -> str:
        """`value`, in `unit`, for people."""
        return f"{value:,.0f}" if self.is_rate else f"{value:.3f}"


def _decode(batch: int) -> GpuWork:
    title = f"decode, batch {batch}, 128 → 256 tokens: ms per step"
    return GpuWork(f"decode-{batch}", title, "decode", batch, 128, 256)


GPU_WORKS: Mapping[str, GpuWork] = {
    work.name: work
    for work in (
        *map(_decode, (1, 8, 32, 128, 256)),
        GpuWork(
            "mix", "256 requests, 100–1024 in and out: output tok/s", "mix", 256, 1024, 1024,
            temperature=0.6,
        ),
        GpuWork("prefill", "prefill 16 × 3,500: tok/s", "prefill", 16, 3500, 1),
        GpuWork(
            "shared", "64 × (2,000 in common + 100) → 32: seconds", "shared", 64, 2100, 32,
            common_tokens=2000,
        ),
    )
}  # fmt: skip

REFERENCE: Mapping[str, Mapping[str, str]] = {
    # vLLM 0.24.0 on one H200, bf16, random weights, torch 2.11, FA3, CUDA graphs: our own
    # measurements, with the engine alone and these works. None was made of `shared`.
    "qwen3-0.6b": {
        "decode-1": "2.4",
        "decode-8": "3.1",
        "decode-32": "3.4",
        "decode-128": "5.8",
        "decode-256": "8.3",
        "mix": "19,500–23,300",
        "prefill": "308,000",
        "start": "92 s (45 s warm)",
    },
    "qwen3-8b": {
        "decode-1": "5.3",
        "decode-8": "5.7",
        "decode-32": "6.2",
        "decode-128": "9.3",
        "decode-256": "14.9",
        "mix": "9,300",
        "prefill": "40,600",
        "start": "77 s",
    },
}

TARGETS: Mapping[str, Mapping[str, float]] = {
    "qwen3-0.6b": {
        "decode-1": 1.2,
        "decode-32": 1.8,
        "decode-256": 5.5,
        "mix": 28_000,
        "prefill": 330_000,
        "start": 15.0,
    },
    "qwen3-8b": {
        "decode-1": 4.6,
        "decode-32": 5.4,
        "decode-256": 13.0,
        "mix": 10_000,
        "prefill": 42_000,
        "start": 30.0,
    },
}


def chosen_gpu_works(names: Sequence[str], *, short: bool) -> list[GpuWork]:
    """The works `names`, or all of them when there are none."""
    works = [GPU_WORKS[name] for name in names or GPU_WORKS]
    return [work.shortened() for work in works] if short else works
