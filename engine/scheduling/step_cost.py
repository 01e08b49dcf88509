"""`StepCost`: how long a step takes, learned from the steps themselves."""

from __future__ import annotations


class StepCost:
    """Two-term model `seconds = base + per_token * tokens`, fitted by least squares in which old
    steps fade (`decay` per step). Owned by the engine thread."""

    def __init__(self, decay: float = 0.97) -> None:
        self._decay = decay
        self._weight = self._x = self._y = self._xx = self._xy = 0.0

    def observe(self, num_tokens: int, seconds: float) -> None:
        """One measured step."""
        keep = self._decay
        self._weight = keep * self._weight + 1.0
        self._x = keep * self._x + num_tokens
        self._y = keep * self._y + seconds
        self._xx = keep * self._xx + num_tokens * num_tokens
        self._xy = keep * self._xy + num_tokens * seconds

    def fit(self) -> tuple[float, float] | None:
        """(base, per_token) in seconds, base not below zero and per_token above it; None before
        there is anything to fit.

        Steps that were all of one size give a line through the origin, which overrates the cost
        of more tokens and so errs on the side of running streams."""
        if self._x == 0.0 or self._y <= 0.0:
            return None
        variance = self._weight * self._xx - self._x * self._x
        if variance > 1e-6 * self._xx:
            per_token = (self._weight * self._xy - self._x * self._y) / variance
            base = (self._y - per_token * self._x) / self._weight
            if per_token > 0.0 and base >= 0.0:
                return base, per_token
        return 0.0, self._y / self._x
