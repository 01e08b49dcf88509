"""The least time that a work can take on a device: bytes over bandwidth, operations over rate.

    python -m scripts.gpu_floors [--bytes-per-s 4.3e12] [--flops-per-s 790e12]

prints the floors of all works for the Qwen3 shapes. Counted are weights (once a step), keys and
values, and the operations of products and attention; not activations, norms, sampling and launches.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.gpu_ceilings import Ceilings
from scripts.gpu_work import GPU_WORKS, GpuWork
from scripts.model_shapes import SHAPES, ModelShape


@dataclass(frozen=True, slots=True)
class Formats:
    """Bytes of an element, and how much faster than 16-bit floats the layers' products are."""

    layer_bytes: float = 2.0
    head_bytes: float = 2.0
    kv_bytes: float = 2.0
    layer_speed: float = 1.0

    @classmethod
    def of(cls, settings: Mapping[str, Any], dtype: str) -> Formats:
        """What fields of EngineConfig make of a model of `dtype`. Tensor cores multiply 8-bit
        floats at twice the rate of 16-bit ones."""
        is_fp8 = settings.get("quantization") == "fp8"
        width = 4.0 if dtype == "float32" else 2.0
        return cls(
            layer_bytes=1.0 if is_fp8 else width,
            head_bytes=width,
            kv_bytes=1.0 if settings.get("kv_cache_dtype") == "fp8" else width,
            layer_speed=2.0 if is_fp8 else 1.0,
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """What a device has to move and to compute; operations as if all were of 16-bit floats."""

    num_bytes: float = 0.0
    flops: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.num_bytes + other.num_bytes, self.flops + other.flops)

    def seconds(self, ceilings: Ceilings) -> float:
        """The longer of the two: at best they overlap."""
        return max(self.num_bytes / ceilings.bytes_per_s, self.flops / ceilings.flops_per_s)


class Floors:
    """Floors of works for one shape on one device."""

    def __init__(
        self, shape: ModelShape, ceilings: Ceilings, formats: Formats | None = None
    ) -> None:
        self._shape = shape
        self._ceilings = ceilings
        self._formats = formats or Formats()

    def weights(self) -> Cost:
        """Reading all weights once."""
        shape, formats = self._shape, self._formats
        return Cost(
            shape.layer_weights * formats.layer_bytes + shape.head_weights * formats.head_bytes
        )

    def rows(self, num_rows: int, num_sampled: int, num_pairs: int, num_kv_tokens: int) -> Cost:
        """Of `num_rows` tokens through the layers, `num_sampled` of them through the head, with
        `num_pairs` of a query and a key, and `num_kv_tokens` tokens of the cache moved once.
        Without the weights."""
        shape, formats = self._shape, self._formats
        flops = (
            2 * shape.layer_weights * num_rows / formats.layer_speed
            + 2 * shape.head_weights * num_sampled
            + shape.attention_flops * num_pairs
        )
        return Cost(num_kv_tokens * shape.kv_elements * formats.kv_bytes, flops)

    def decode_step_s(self, contexts: Sequence[int], common: int = 0) -> float:
        """Of a step that gives each sequence a token; its own counts in its context. `common`
        tokens are the same in all and need be read only once."""
        num_kv_tokens = common + sum(contexts) - common * len(contexts)
        cost = self.rows(len(contexts), len(contexts), sum(contexts), num_kv_tokens)
        return (self.weights() + cost).seconds(self._ceilings)

    def prefill(self, parts: Sequence[tuple[int, int]]) -> Cost:
        """Of prompts, each as (tokens that are cached, tokens to compute), in one step. What is
        cached is read once, however many begin with it."""
        num_rows = sum(count for _, count in parts)
        num_pairs = sum(start * count + count * (count + 1) // 2 for start, count in parts)
        num_kv_tokens = num_rows + max(start for start, _ in parts)
        return self.weights() + self.rows(num_rows, len(parts), num_pairs, num_kv_tokens)

    def work_s(self, work: GpuWork) -> float:
        """Of all of `work`, from the first prompt to the last token."""
        lengths = work.lengths()
        if work.kind == "mix":
            return self._mix_s(lengths)
        prompts = [(0, prompt) for prompt, _ in lengths]
        if work.common_tokens:
            own = lengths[0][0] - work.common_tokens
            prompts[1:] = [(work.common_tokens, own)] * (len(lengths) - 1)
        seconds = self.prefill(prompts).seconds(self._ceilings)
        for step in range(1, work.output_tokens):
            contexts = [prompt + step for prompt, _ in lengths]
            seconds += self.decode_step_s(contexts, work.common_tokens)
        return seconds

    def decode_only_s(self, work: GpuWork) -> float:
        """A mean step of `work` while all its sequences decode."""
        lengths = work.lengths()
        times = [
            self.decode_step_s([prompt + step for prompt, _ in lengths])
            for step in range(1, work.output_tokens)
        ]
        return sum(times) / len(times)

    def _mix_s(self, lengths: Sequence[tuple[int, int]]) -> float:
        """Prompts are read in the steps in which others decode, of which there are at least as
        many as the longest answer has tokens."""
        total = self.prefill([(0, prompt) for prompt, _ in lengths])
        for _ in range(1, max(output for _, output in lengths)):
            total += self.weights()
        for prompt, output in lengths:
            num_pairs = sum(range(prompt + 1, prompt + output))
            total += self.rows(output - 1, output - 1, num_pairs, num_pairs)
        return total.seconds(self._ceilings)


def floor_of(floors: Floors, work: GpuWork) -> float:
    """The floor in the unit of `work` (a rate: the highest)."""
    return work.figure(floors.work_s(work))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes-per-s", type=float, default=4.3e12)
    parser.add_argument("--flops-per-s", type=float, default=790e12)
    options = parser.parse_args()
    ceilings = Ceilings("given", options.bytes_per_s, options.flops_per_s)
    names = [name for name in SHAPES if name != "tiny"]
    print("| work | " + " | ".join(f"{name} shape" for name in names) + " |")
    print("| --- |" + " ---: |" * len(names))
    for work in GPU_WORKS.values():
        all_floors = [Floors(SHAPES[name], ceilings) for name in names]
        values = [floor_of(floors, work) for floors in all_floors]
        print(f"| {work.title} | " + " | ".join(map(work.shown, values)) + " |")
        if work.kind == "decode":
            values = [floors.decode_only_s(work) * 1000 for floors in all_floors]
            print("| … while all decode | " + " | ".join(map(work.shown, values)) + " |")


if __name__ == "__main__":
    main()
