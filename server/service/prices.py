"""`PriceList`: what tokens cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.api import Usage

_TOKENS = 1_000_000
_DIGITS = 12
"""Of an amount, behind the point: a single token at a hundredth of a unit per million is 1e-8."""


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices of a million tokens: prompt tokens that the prefix cache supplied (`input_hit`) or
    that were computed (`input_miss`), and sampled ones (`output`). Raises ValueError for a price
    below 0."""

    input_hit: float
    input_miss: float
    output: float
    currency: str = "USD"

    def __post_init__(self) -> None:
        for name in ("input_hit", "input_miss", "output"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, not {getattr(self, name)}")

    def cost(self, usage: Usage) -> float:
        """What `usage` costs, in `currency`."""
        missed = usage.prompt_tokens - usage.cached_tokens
        total = (
            usage.cached_tokens * self.input_hit
            + missed * self.input_miss
            + usage.completion_tokens * self.output
        )
        return round(total / _TOKENS, _DIGITS)

    def cost_json(self, *usages: Usage) -> dict[str, Any]:
        """The cost of all of them together, as replies tell it."""
        amount = round(sum(self.cost(usage) for usage in usages), _DIGITS)
        return {"amount": amount, "currency": self.currency}
