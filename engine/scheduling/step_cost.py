"""`StepCost`: how long a step takes, learned from the steps themselves."""

from __future__ import annotations

from math import sqrt

_ANY_NUMBER = 1e9
"""Of tokens: where they cost next to nothing, the quotient may be infinite."""


class _TwoTerms:
    """Least squares of `y = a * u + b * v` with a, b ≥ 0, in which old observations fade by
    `decay` with each new one. Squares are divided by `v`, so that one large step does not
    outweigh many small ones."""

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self._uu = self._uv = self._vv = self._uy = self._vy = 0.0

    def observe(self, u: float, v: float, y: float) -> None:
        """One observation, with `v` > 0."""
        keep = self._decay
        self._uu = keep * self._uu + u * u / v
        self._uv = keep * self._uv + u
        self._vv = keep * self._vv + v
        self._uy = keep * self._uy + u * y / v
        self._vy = keep * self._vy + y

    def fit(self) -> tuple[float, float] | None:
        """(a, b); None before there is anything to fit. Observations that all have one ratio of
        u to v are laid to v alone."""
        if self._vv == 0.0:
            return None
        determinant = self._uu * self._vv - self._uv * self._uv
        if determinant > 1e-6 * self._uu * self._vv:
            a = (self._uy * self._vv - self._vy * self._uv) / determinant
            b = (self._vy * self._uu - self._uy * self._uv) / determinant
            if a >= 0.0 and b >= 0.0:
                return a, b
            if b < 0.0:
                return self._uy / self._uu, 0.0
        return 0.0, self._vy / self._vv


class StepCost:
    """Seconds of a step = decode part + prefill part. Owned by the engine thread.

    The decode part is `base + per_token * decode tokens` (drafts count, they are computed),
    learned from the steps that only decode; the prefill part is what a step takes beyond that:
    `per_token * tokens + per_pair * pairs`, where pairs are those of a new token and a token it
    attends to, so that a chunk far inside a long prompt is known to be dear. Each part fades with
    its own observations only: an hour of decoding does not forget what a prompt costs."""

    def __init__(self, decay: float = 0.97, prefill_decay: float = 0.8) -> None:
        self._decode = _TwoTerms(decay)
        self._prefill = _TwoTerms(prefill_decay)

    def observe(
        self, num_decode_tokens: int, num_prefill_tokens: int, num_pairs: float, seconds: float
    ) -> None:
        """One measured step."""
        if num_prefill_tokens == 0:
            if num_decode_tokens:
                self._decode.observe(1.0, num_decode_tokens, seconds)
            return
        prefill_s = max(0.0, seconds - self.decode_seconds(num_decode_tokens))
        self._prefill.observe(num_pairs, num_prefill_tokens, prefill_s)

    def decode_seconds(self, num_decode_tokens: int) -> float:
        """What a step takes before it prefills anything; 0 as long as nothing is known."""
        fitted = self._decode.fit()
        return 0.0 if fitted is None else fitted[0] + fitted[1] * num_decode_tokens

    def prefill_tokens_in(self, seconds: float, start: int) -> int | None:
        """How many tokens of a prompt, the first of them at index `start`, fit into that time:
        n with `per_token * n + per_pair * pairs(start, n) = seconds`. None: not known yet."""
        fitted = self._prefill.fit()
        if fitted is None:
            return None
        per_pair, per_token = fitted
        if seconds <= 0.0:
            return 0
        linear = per_token + per_pair * start
        divisor = linear + sqrt(linear * linear + 2.0 * per_pair * seconds)
        return int(min(2.0 * seconds / divisor, _ANY_NUMBER)) if divisor > 0.0 else None

    def prefill_seconds(self, start: int, count: int) -> float:
        """The inverse of `prefill_tokens_in`; 0 as long as nothing is known."""
        per_pair, per_token = self._prefill.fit() or (0.0, 0.0)
        return per_token * count + per_pair * num_pairs(start, count)


def num_pairs(start: int, count: int) -> float:
    """Pairs of one of the tokens [start, start + count) and a token at or before it, about."""
    return count * (start + 0.5 * count)
