"""`RowCost`: how long a decode step takes by its number of rows, learned from the steps."""

from __future__ import annotations

import math
from bisect import bisect_left, insort

_PRIOR_PER_ROW = 0.03
"""What a row adds to a step before more was measured: little, so that it is tried."""
_MAX_SURPRISE = math.log(4.0)
"""A step that was disturbed counts no more than one that took four times as long."""
_FIRST_SURPRISE = 0.3
"""The same for the first step of its size, as a logarithm, too: were it believed, a size whose
first step was disturbed would not be tried again. Where it does cost so much, the next says so."""
# Variances of logarithms of seconds, so their square roots are relative errors.
_NOISE = 0.1**2
_NEW_RATIO = 0.2**2
_SCALE_WALK = 0.02**2
_RATIO_WALK = 0.005**2


class _Size:
    """What steps of one size take, in the common scale."""

    __slots__ = ("log_ratio", "seen_at", "variance")

    def __init__(self, log_ratio: float, variance: float, seen_at: int) -> None:
        self.log_ratio = log_ratio
        self.variance = variance
        self.seen_at = seen_at


class RowCost:
    """Step times as `scale * ratio(rows)`. Owned by the engine thread.

    The scale may move with every step, since contexts grow and other programs come and go; the
    ratios, one for each number of rows that occurred, hardly do. A Kalman filter with a diagonal
    covariance tells the two apart, so that steps of different sizes are compared although they
    were measured at different times. Where a machine gets more rows for nothing and where they
    begin to cost is seen, not assumed."""

    def __init__(self) -> None:
        self._log_scale = 0.0
        self._variance = 0.0
        self._sizes: dict[int, _Size] = {}
        self._rows: list[int] = []
        self._num_steps = 0

    def observe(self, rows: int, seconds: float) -> None:
        """One step that decoded `rows` rows and did nothing else."""
        if seconds <= 0.0:
            return
        self._num_steps += 1
        if not self._rows:
            self._log_scale, self._variance = math.log(seconds), _NOISE
            # The first size is the unit of the ratios, and always 1.
            self._add(rows, _Size(0.0, 0.0, self._num_steps))
            return
        is_new = rows not in self._sizes
        if is_new:
            self._add(rows, _Size(math.log(self.ratio(rows)), _NEW_RATIO, self._num_steps))
        size = self._sizes[rows]
        if size.variance:
            size.variance += _RATIO_WALK * (self._num_steps - size.seen_at)
        size.seen_at = self._num_steps
        self._variance += _SCALE_WALK
        surprise = math.log(seconds) - self._log_scale - size.log_ratio
        slowest = _FIRST_SURPRISE if is_new else _MAX_SURPRISE
        surprise = max(-_MAX_SURPRISE, min(surprise, slowest))
        total = self._variance + size.variance + _NOISE
        self._log_scale += self._variance / total * surprise
        size.log_ratio += size.variance / total * surprise
        self._variance *= 1.0 - self._variance / total
        size.variance *= 1.0 - size.variance / total

    @property
    def max_rows(self) -> int:
        """The largest step that is worth a try: twice the largest so far."""
        return 2 * self._rows[-1] if self._rows else 1

    def ratio(self, rows: int) -> float:
        """How long a step of `rows` rows takes, in a unit of its own. Between sizes that
        occurred, on the line between them; beyond, on the last line."""
        size = self._sizes.get(rows)
        if size is not None:
            return math.exp(size.log_ratio)
        if not self._rows:
            return 1.0
        index = bisect_left(self._rows, rows)
        if index == 0:
            return self._at(0)
        low, low_ratio = self._rows[index - 1], self._at(index - 1)
        if index < len(self._rows):
            slope = (self._at(index) - low_ratio) / (self._rows[index] - low)
        else:
            slope = _PRIOR_PER_ROW * low_ratio
            if index > 1:
                rise = low_ratio - self._at(index - 2)
                slope = max(slope, rise / (low - self._rows[index - 2]))
        return low_ratio + slope * (rows - low)

    def _add(self, rows: int, size: _Size) -> None:
        self._sizes[rows] = size
        insort(self._rows, rows)

    def _at(self, index: int) -> float:
        return math.exp(self._sizes[self._rows[index]].log_ratio)
