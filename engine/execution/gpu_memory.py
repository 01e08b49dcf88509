"""`MemoryPlan`: how a GPU's memory is shared out, and what is left for the KV cache. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import ModelLoadError

RESERVE = 256 << 20
"""Bytes kept for the libraries' workspaces and what an allocator loses between its blocks."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes. `used`: what is taken of the card when the plan is made, by this process and others.
    `step`: what the largest step takes beyond that while it runs; `graphs`: what all captured
    graphs will take."""

    total: int
    used: int
    step: int
    graphs: int
    utilization: float

    @property
    def budget(self) -> int:
        """What everything together may take."""
        return int(self.total * self.utilization)

    @property
    def for_cache(self) -> int:
        """What is left for the KV cache; negative where even the rest does not fit."""
        return self.budget - self.used - self.step - self.graphs - RESERVE

    def num_blocks(
        self,
        bytes_per_token: int,
        block_size: int,
        max_model_len: int,
        wanted_tokens: int | None = None,
    ) -> int:
        """Blocks of the cache: all that fit, or enough for `wanted_tokens`. Raises ModelLoadError
        when these do not fit, or not even one sequence of `max_model_len` tokens does."""
        num_fitting = max(0, self.for_cache) // (bytes_per_token * block_size)
        capacity = num_fitting * block_size
        if wanted_tokens is not None:
            num_wanted = -(-wanted_tokens // block_size)
            if num_wanted > num_fitting:
                raise ModelLoadError(
                    f"kv_cache_tokens is {wanted_tokens}, which takes "
                    f"{_gib(num_wanted * block_size * bytes_per_token)}; {self._account()}, "
                    f"enough for {capacity} tokens."
                )
            return num_wanted
        if capacity < max_model_len:
            raise ModelLoadError(
                f"One sequence of max_model_len {max_model_len} tokens takes "
                f"{_gib(max_model_len * bytes_per_token)} of KV cache; {self._account()}, enough "
                f"for {capacity} tokens. Lower max_model_len or max_num_batched_tokens, or raise "
                "gpu_memory_utilization."
            )
        return num_fitting

    def _account(self) -> str:
        return (
            f"of the GPU's {_gib(self.total)}, gpu_memory_utilization {self.utilization:g} allows "
            f"{_gib(self.budget)}, {_gib(self.used)} are in use (weights, other programs), a step "
            f"takes up to {_gib(self.step)} and graphs {_gib(self.graphs + RESERVE)}, which leaves "
            f"{_gib(max(0, self.for_cache))}"
        )


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 30):.2f} GiB"
