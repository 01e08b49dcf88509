"""`PrefillBudget`: what a step may still spend on prompts, in tokens and in seconds."""

from __future__ import annotations

from engine.scheduling.step_cost import StepCost


class PrefillBudget:
    """One step's allowance. Lives for one call of `Scheduler.schedule`.

    `min_tokens`: the first chunk is not cut below this, or there is none (`seconds` too little
    and not `is_due`)."""

    def __init__(
        self, cost: StepCost, tokens: int, seconds: float, *, min_tokens: int, is_due: bool
    ) -> None:
        self._cost = cost
        self._tokens = tokens
        self._seconds = seconds
        self._min_tokens = min_tokens
        affordable = cost.prefill_tokens_in(seconds, 0)
        if affordable is not None and affordable < min_tokens and not is_due:
            self._tokens = 0

    @property
    def is_spent(self) -> bool:
        """Nothing more is to be prefilled in this step."""
        return self._tokens <= 0

    def take(self, start: int, wanted: int) -> int:
        """Spends on up to `wanted` tokens of a prompt, the first at index `start`. At least one,
        unless the budget is spent."""
        affordable = self._cost.prefill_tokens_in(self._seconds, start)
        count = min(wanted, self._tokens)
        if affordable is not None:
            count = min(count, max(affordable, self._min_tokens, 1))
        self._min_tokens = 0
        self._tokens -= count
        self._seconds -= self._cost.prefill_seconds(start, count)
        if affordable is not None and self._seconds <= self._cost.prefill_seconds(0, 1):
            self._tokens = 0
        return count
