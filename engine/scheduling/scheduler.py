"""`Scheduler`: which sequences compute how many tokens in the next step.

One token budget a step and no separate prefill phase. Running decodes come first, one token each;
prefill chunks get what is left of the budget and of the step-time target. No torch, no clock:
time comes in as an argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.kv.block_allocator import BlockAllocator
from engine.scheduling.drafter import Drafter, NoDrafts
from engine.scheduling.queues import AGEING_SHARE, WaitingQueue, urgency
from engine.scheduling.scheduler_output import ScheduledSequence, SchedulerOutput
from engine.scheduling.sequence import Sequence, SequenceStatus
from engine.scheduling.step_cost import StepCost
from engine.types import RequestId


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """See the fields of the same names in `EngineConfig`."""

    max_num_seqs: int = 32
    max_num_batched_tokens: int = 512
    step_time_target_s: float = 0.25
    prefill_step_time_target_s: float = 1.0
    max_prefill_gap_steps: int = 4
    min_chunk_tokens: int = 32


class Scheduler:
    """Owns the queues and, through the allocator, every block. Owned by the engine thread."""

    def __init__(
        self,
        limits: SchedulerLimits,
        allocator: BlockAllocator,
        drafter: Drafter | None = None,
        *,
        max_model_len: int = 1 << 40,
    ) -> None:
        self._limits = limits
        self._allocator = allocator
        self._drafter = drafter or NoDrafts()
        self._max_model_len = max_model_len
        self._waiting = WaitingQueue()
        self._running: dict[RequestId, Sequence] = {}
        self._cost = StepCost()
        self._steps_without_prefill = 0
        self._blocked_at: int | None = None
        """Available blocks when the head of the queue did not fit; None: not known to."""
        self.num_preemptions = 0

    @property
    def num_running(self) -> int:
        """Sequences that hold blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Sequences that hold none."""
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        """Whether a step would have anything to do."""
        return bool(self._running or self._waiting)

    def sequences(self) -> list[Sequence]:
        """All unfinished sequences, running ones first."""
        return [*self._running.values(), *self._waiting]

    def add(self, sequence: Sequence) -> None:
        """Queues a new sequence."""
        self._waiting.add(sequence)
        self._blocked_at = None

    def finish(self, sequence: Sequence) -> None:
        """Takes the sequence out, wherever it is, and gives its blocks back."""
        if self._running.pop(sequence.request_id, None) is None:
            self._waiting.remove(sequence)
            self._blocked_at = None  # it may have been the head that did not fit
        self._allocator.free(sequence)
        self._drafter.forget(sequence)
        sequence.status = SequenceStatus.FINISHED

    def observe(self, output: SchedulerOutput, seconds: float) -> None:
        """Tells how long the step took, for the cost model."""
        self._cost.observe(output.num_tokens, seconds)

    def schedule(self, now_s: float) -> SchedulerOutput:
        """Chooses the next step and allocates its blocks. Preempts if running sequences cannot
        grow; the running sequence that came first is never preempted, so one always advances."""
        preempted = self._grow_decodes()
        decodes = [seq for seq in self._running.values() if seq.status is SequenceStatus.DECODE]
        scheduled = self._schedule_decodes(decodes)
        num_decodes = len(scheduled)
        num_decode_tokens = sum(item.num_tokens for item in scheduled)
        budget = self._prefill_budget(num_decode_tokens)
        # What was just preempted would take the blocks straight back.
        for sequence in self._prefills(now_s, admit=not preempted) if budget > 0 else ():
            count = min(budget, sequence.num_remaining_tokens)
            is_last = count == sequence.num_remaining_tokens
            start = sequence.num_computed_tokens
            scheduled.append(ScheduledSequence(sequence, start, count, samples=is_last))
            budget -= count
            if budget <= 0:
                break
        num_prefill = sum(item.num_tokens for item in scheduled[num_decodes:])
        self._steps_without_prefill = 0 if num_prefill else self._steps_without_prefill + 1
        return SchedulerOutput(tuple(scheduled), tuple(preempted), num_decode_tokens, num_prefill)

    def commit(self, item: ScheduledSequence, token_ids: tuple[int, ...]) -> None:
        """Books a computed item: its tokens are in the cache, and `token_ids` were sampled: the
        drafts that were right and one token more, which is not in the cache yet."""
        sequence = item.sequence
        num_drafts = len(item.draft_token_ids)
        num_accepted = max(0, len(token_ids) - 1)
        sequence.token_ids += token_ids
        sequence.num_computed_tokens = item.start + item.num_tokens - num_drafts + num_accepted
        self._allocator.publish(sequence)
        if token_ids:
            sequence.status = SequenceStatus.DECODE
        if num_drafts:
            self._drafter.observe(sequence, num_drafts, num_accepted)

    def check(self) -> None:
        """Raises BlockPoolError unless every block is accounted for."""
        self._allocator.check(self.sequences())

    def _schedule_decodes(self, decodes: list[Sequence]) -> list[ScheduledSequence]:
        """One token for each, and behind it as many drafts as the token budget, the blocks that
        are free and the sequence's own limits allow."""
        left = self._limits.max_num_batched_tokens - len(decodes)
        scheduled = []
        for sequence in decodes:
            drafts = self._draft(sequence, left, len(decodes))
            left -= len(drafts)
            start = sequence.num_computed_tokens
            scheduled.append(ScheduledSequence(sequence, start, 1 + len(drafts), True, drafts))
        return scheduled

    def _draft(self, sequence: Sequence, limit: int, num_decoding: int) -> tuple[int, ...]:
        max_tokens = sequence.request.params.max_tokens
        if max_tokens is not None:
            limit = min(limit, max_tokens - sequence.num_output_tokens - 1)
        limit = min(limit, self._max_model_len - sequence.num_tokens - 1)
        if limit <= 0:
            return ()
        drafts = self._drafter.propose(sequence, limit, num_decoding)
        if not drafts or not self._allocator.grow(sequence, num_ahead=len(drafts)):
            return ()
        return drafts

    def _prefill_budget(self, num_decodes: int) -> int:
        limits = self._limits
        left = limits.max_num_batched_tokens - num_decodes
        cost = self._cost.fit()
        if cost is None:
            return left
        base_s, per_token_s = cost
        if num_decodes == 0:
            room_s = limits.prefill_step_time_target_s - base_s
            return min(left, max(int(room_s / per_token_s), limits.min_chunk_tokens))
        decode_s = base_s + per_token_s * num_decodes
        # Where decodes alone come near the target or miss it, prompts still get half the time:
        # streams slow down by two at the most, and nobody waits for all of them to end.
        room_s = max(limits.step_time_target_s - decode_s, decode_s)
        affordable = int(room_s / per_token_s)
        if affordable < limits.min_chunk_tokens:
            is_due = self._steps_without_prefill + 1 >= limits.max_prefill_gap_steps
            affordable = limits.min_chunk_tokens if is_due else 0
        return min(left, affordable)

    def _prefills(self, now_s: float, *, admit: bool) -> Iterable[Sequence]:
        """Sequences with prefill work, most urgent first; waiting ones are admitted on the way."""
        started = [seq for seq in self._running.values() if seq.status is SequenceStatus.PREFILL]
        candidates = started
        if admit and self._may_admit():
            candidates = [*started, *self._waiting]
        ageing = self._ageing_tokens_per_s()
        candidates.sort(key=lambda sequence: urgency(sequence, self._work(sequence), now_s, ageing))
        can_admit = True
        for sequence in candidates:
            if sequence.status is SequenceStatus.WAITING:
                # No overtaking once one does not fit: it would starve.
                can_admit = can_admit and self._admit(sequence, now_s)
                if not can_admit:
                    continue
            yield sequence

    def _may_admit(self) -> bool:
        """False while the queue's head did not fit and no block has come back since: then no
        waiting sequence needs to be looked at, however many there are."""
        if len(self._running) >= self._limits.max_num_seqs:
            return False
        available = self._allocator.pool.num_available
        return self._blocked_at is None or available > self._blocked_at

    def _work(self, sequence: Sequence) -> int:
        """Tokens to compute before the sequence samples, as the prefix cache stands."""
        if sequence.status is SequenceStatus.WAITING:
            return sequence.num_tokens - self._allocator.num_cached_tokens(sequence)
        return sequence.num_remaining_tokens

    def _ageing_tokens_per_s(self) -> float:
        cost = self._cost.fit()
        return AGEING_SHARE / cost[1] if cost else 0.0

    def _admit(self, sequence: Sequence, now_s: float) -> bool:
        if len(self._running) >= self._limits.max_num_seqs:
            return False
        # Room to grow for those that run, so that an admission is not undone at once.
        reserve = len(self._running)
        if not self._allocator.admit(sequence, reserve_blocks=reserve):
            self._blocked_at = self._allocator.pool.num_available
            return False
        self._blocked_at = None
        self._waiting.remove(sequence)
        self._running[sequence.request_id] = sequence
        sequence.status = SequenceStatus.PREFILL
        if sequence.num_cached_tokens is None:
            sequence.num_cached_tokens = sequence.num_computed_tokens
            sequence.first_scheduled_s = now_s
        return True

    def _grow_decodes(self) -> list[Sequence]:
        """A block for each sequence that needs one; returns those that had to give theirs."""
        preempted: list[Sequence] = []
        by_age = sorted(
            (seq for seq in self._running.values() if seq.status is SequenceStatus.DECODE),
            key=_seniority,
        )
        for sequence in by_age:
            while sequence.status is SequenceStatus.DECODE and not self._allocator.grow(sequence):
                victim = self._choose_victim()
                self._preempt(victim)
                preempted.append(victim)
        return preempted

    def _choose_victim(self) -> Sequence:
        """The sequence of the least urgent priority that loses the least work and frees at
        least one block; never the most senior one, which fits alone: no sequence is allowed
        more tokens than the cache holds."""
        senior = min(self._running.values(), key=_seniority)
        candidates = [sequence for sequence in self._running.values() if sequence is not senior]
        frees = [seq for seq in candidates if self._allocator.num_exclusive_blocks(seq) > 0]
        return min(
            frees or candidates,
            key=lambda seq: (-seq.request.priority, seq.num_computed_tokens, -seq.arrival_s),
        )

    def _preempt(self, sequence: Sequence) -> None:
        """Takes the blocks back; the tokens stay, and the cached prefix usually does too."""
        del self._running[sequence.request_id]
        self._allocator.free(sequence)
        sequence.status = SequenceStatus.WAITING
        sequence.num_preemptions += 1
        self.num_preemptions += 1
        self._waiting.add(sequence)


def _seniority(sequence: Sequence) -> tuple[int, float]:
    return (sequence.request.priority, sequence.arrival_s)
