"""`PromptLookupDrafter`: drafts what followed when the same tokens stood in the sequence before.

Answers about a text quote it. Prompt lookup decoding: A. Saxena, 2023; checking drafts in one
step: Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding",
2023.
"""

from __future__ import annotations

from engine.scheduling.scheduler_output import SchedulerOutput
from engine.scheduling.sequence import Sequence
from engine.speculation.acceptance import AcceptanceRates
from engine.speculation.ngram_index import MAX_LENGTH, NgramIndex
from engine.speculation.row_cost import RowCost
from engine.types import RequestId

_MIN_GAIN = 1.05
"""Drafts must promise so much more speed than none: estimates err."""
_MIN_CHANCE = 0.05
"""No draft is worth its row below this, wherever rows are anything but free."""
_FIRST_CREDIT = 0.2
_LOSS_SHARE = 0.02
"""What a sequence may lose to wrong drafts, in steps: so much at its start, and so much more with
each step. However wrong they are, an answer of 20 tokens or more keeps 97 % of its speed, and a
shorter one loses a fifth of a step and 2 %."""
_PROBE_EVERY = 32
"""Steps whose drafts were likely right but held too dear, until one is tried all the same."""
_PROBE_RATE = 0.5
_PLAIN_EVERY = 64
"""After so many steps with drafts in a row, one without: what drafts save is against that."""


class _Looked:
    """What is kept for one sequence. `credit`: what its drafts may cost, in steps: what they have
    saved so far, and what may be lost, less what they took; `staked`: what the last ones took."""

    __slots__ = ("credit", "index", "rates", "staked")

    def __init__(self, token_ids: list[int], parent: AcceptanceRates) -> None:
        self.index = NgramIndex(token_ids)
        self.rates = AcceptanceRates(parent)
        self.credit = _FIRST_CREDIT
        self.staked = 0.0


class PromptLookupDrafter:
    """Implements `Drafter`. Owned by the engine thread.

    A draft is as long as makes the step's tokens per second largest, by what the match's length
    says of its chance and what steps of so many rows have taken. So it is off where it does not
    pay: in sequences that repeat nothing, and on machines where a row costs a step."""

    def __init__(self, *, max_draft_tokens: int = 8, max_batch: int = 4) -> None:
        """At most `max_draft_tokens` for each of at most `max_batch` sequences that decode in a
        step; none where more do: their own rows fill the machine."""
        self._max_draft_tokens = max_draft_tokens
        self.max_batch = max_batch
        self._rates = AcceptanceRates(keep=0.98, weight=4.0)
        self._cost = RowCost()
        self._looked: dict[RequestId, _Looked] = {}
        self._num_declined = 0
        self._num_since_plain = 0
        # Of the step that is being planned: rows for drafts, and how many should be right.
        self._num_drafts = 0
        self._num_expected = 0.0

    def propose(self, sequence: Sequence, limit: int, num_decoding: int) -> tuple[int, ...]:
        """See `Drafter`. Microseconds, but for a sequence's first time, when its prompt is
        indexed: some milliseconds for thousands of tokens."""
        if num_decoding > self.max_batch:
            return ()
        looked = self._looked.get(sequence.request_id)
        if looked is None:
            looked = _Looked(sequence.token_ids, self._rates)
            self._looked[sequence.request_id] = looked
        for length, is_hit in looked.index.catch_up():
            looked.rates.observe(length, is_hit)
        looked.credit += _LOSS_SHARE
        if not looked.index.length or self._num_since_plain >= _PLAIN_EVERY:
            return ()
        count = self._best_count(looked, min(limit, self._max_draft_tokens), num_decoding)
        return looked.index.draft(count) if count else ()

    def observe(self, sequence: Sequence, num_drafted: int, num_accepted: int) -> None:
        """See `Drafter`."""
        looked = self._looked.get(sequence.request_id)
        if looked is not None:
            looked.credit += num_accepted - looked.staked

    def observe_step(self, output: SchedulerOutput, seconds: float) -> None:
        """See `Drafter`."""
        self._num_since_plain = self._num_since_plain + 1 if self._num_drafts else 0
        self._num_drafts, self._num_expected = 0, 0.0
        if output.num_prefill_tokens == 0 and len(output.scheduled) <= self.max_batch:
            self._cost.observe(output.num_decode_tokens, seconds)

    def forget(self, sequence: Sequence) -> None:
        """See `Drafter`."""
        self._looked.pop(sequence.request_id, None)

    def _best_count(self, looked: _Looked, limit: int, num_decoding: int) -> int:
        """The number of drafts that makes this step's expected tokens per second largest, of
        those that the sequence can afford to lose."""
        rows = num_decoding + self._num_drafts
        tokens = num_decoding + self._num_expected
        ratio = self._cost.ratio(rows)
        limit = min(limit, self._cost.max_rows - rows)
        best_speed, best_count, best_expected, stake = _MIN_GAIN * tokens / ratio, 0, 0.0, 0.0
        length = looked.index.length
        chance, expected = 1.0, 0.0
        for count in range(1, limit + 1):
            chance *= looked.rates.rate(min(length + count - 1, MAX_LENGTH))
            if chance < _MIN_CHANCE:
                break
            expected += chance
            longer = self._cost.ratio(rows + count)
            # Every sequence of the step waits for the rows that one adds.
            cost = (longer / ratio - 1.0) * num_decoding
            speed = (tokens + expected) / longer
            if speed > best_speed and cost <= looked.credit:
                best_speed, best_count, best_expected, stake = speed, count, expected, cost
        if best_count == 0 and limit > 0 and looked.rates.rate(length) >= _PROBE_RATE:
            self._num_declined += 1
            if self._num_declined % _PROBE_EVERY == 0:
                best_count = 1 + self._num_declined // _PROBE_EVERY % limit
        self._num_drafts += best_count
        self._num_expected += best_expected
        looked.staked = stake
        return best_count
