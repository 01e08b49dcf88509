"""`Scheduler`: which sequences compute how many tokens in the next step.

One token budget a step and no separate prefill phase. Running decodes come first, one token each
and its drafts; prefill chunks get what is left of the budget and of the step-time target. No
torch, no clock: time comes in as an argument.

The next step may be planned before the last one's tokens are known. What a plan computes and how
many tokens it samples is booked when it is made; which tokens they are, when it is committed.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.kv.block_allocator import BlockAllocator, BlockCopy
from engine.scheduling.admission import Admission
from engine.scheduling.drafter import Drafter, NoDrafts
from engine.scheduling.fair_shares import DECODE_WEIGHT
from engine.scheduling.preemption import choose_givers, choose_victim, seniority
from engine.scheduling.prefill_budget import PrefillBudget
from engine.scheduling.scheduler_output import ScheduledSequence, SchedulerOutput
from engine.scheduling.sequence import Sequence, SequenceStatus
from engine.scheduling.step_cost import StepCost, num_pairs
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
    """Owns the queues and, through the allocator, every block. Owned by the engine thread.

    A step costs O(running) work, and O(waiting) only where somebody may be admitted or a user
    has nothing running. With hundreds of sequences it is Python's part of a step that counts, so
    what is done for each decode in each step is written out in one place."""

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
        self._block_size = allocator.block_size
        self._drafter = drafter or NoDrafts()
        self._max_model_len = max_model_len
        self._admission = Admission(allocator, max_model_len)
        self._running: dict[RequestId, Sequence] = {}
        self._cost = StepCost()
        self._steps_without_prefill = 0
        self._preempted: list[Sequence] = []
        """Since the last step that was not empty."""
        self.num_preemptions = 0

    @property
    def num_running(self) -> int:
        """Sequences that hold blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Sequences that hold none."""
        return len(self._admission.waiting)

    @property
    def num_forks(self) -> int:
        """Sequences that took another one's computed prompt."""
        return self._admission.num_forks

    @property
    def has_work(self) -> bool:
        """Whether a step would have anything to do."""
        return bool(self._running) or len(self._admission.waiting) > 0

    def sequences(self) -> list[Sequence]:
        """All unfinished sequences, running ones first."""
        return [*self._running.values(), *self._admission.waiting]

    @property
    def may_draft(self) -> bool:
        """Whether the next step might check drafts, for which all tokens must be known."""
        max_batch = self._drafter.max_batch
        return max_batch > 0 and 0 < len(self._decoding()) <= max_batch

    def add(self, sequence: Sequence) -> None:
        """Queues a new sequence."""
        max_tokens = sequence.request.params.max_tokens
        limit = min(self._max_model_len, self._allocator.capacity_tokens)
        if max_tokens is not None:
            limit = min(limit, sequence.num_prompt_tokens + max_tokens)
        sequence.length_limit = limit
        self._admission.add(sequence)

    def finish(self, sequence: Sequence) -> None:
        """Takes the sequence out, wherever it is, and gives its blocks back."""
        self._running.pop(sequence.request_id, None)
        self._admission.finish(sequence)
        self._drafter.forget(sequence)
        sequence.status = SequenceStatus.FINISHED

    def schedule(self, now_s: float, *, may_draft: bool = True) -> SchedulerOutput:
        """Chooses the next step, allocates its blocks and books it: unless it is empty it must be
        computed, after those that were chosen before. Preempts if running sequences cannot grow,
        where the one that came first is spared, so that one always advances; and if a user has
        long had nothing running while others have several. A step with drafts must be committed
        before the next one is chosen; `may_draft` False: there are none."""
        decoding, preempted = self._grow_decodes(now_s)
        copies: list[BlockCopy] = []
        if not preempted and self._admission.waiting:
            preempted = self._make_way(now_s, copies)
        if preempted:
            decoding = [seq for seq in decoding if seq.status is SequenceStatus.DECODE]
        decodes = self._schedule_decodes(decoding, may_draft=may_draft)
        num_decode = sum([item.num_tokens for item in decodes])
        prefills: list[ScheduledSequence] = []
        if self._admission.waiting or len(self._running) > len(decoding):
            # What was just preempted would take the blocks straight back.
            prefills = self._schedule_prefills(num_decode, now_s, copies, admit=not preempted)
        num_prefill = 0
        for item in prefills:
            # Not before all are chosen: what this step computes is not there to be copied by it.
            num_prefill += item.num_tokens
            item.sequence.num_computed_tokens = item.start + item.num_tokens
            if item.samples:
                item.sequence.status = SequenceStatus.DECODE
                item.sequence.num_pending = 1
        self._steps_without_prefill = 0 if num_prefill else self._steps_without_prefill + 1
        self._preempted += preempted
        if not decodes and not prefills:
            assert not copies, "whoever was admitted by a copy has something to compute"
            return SchedulerOutput()
        told, self._preempted = tuple(self._preempted), []
        return SchedulerOutput(
            (*decodes, *prefills),
            told,
            num_decode,
            num_prefill,
            tuple(copies),
            len(decodes),
        )

    def commit(self, item: ScheduledSequence, token_ids: tuple[int, ...]) -> None:
        """Books a computed item of a sequence that has not ended: its tokens are in the cache, and
        `token_ids` were sampled: the drafts that were right and one token more, which is not in
        the cache yet. Items are committed in the order in which they were scheduled. One that was
        preempted meanwhile has its tokens all the same, and no cache."""
        sequence = item.sequence
        num_drafts = len(item.draft_token_ids)
        num_computed = item.start + item.num_tokens
        if token_ids:
            sequence.token_ids += token_ids
            sequence.num_pending -= 1
            sequence.account.num_tokens += DECODE_WEIGHT * len(token_ids)
        if num_drafts:
            num_accepted = len(token_ids) - 1
            num_computed += num_accepted - num_drafts
            sequence.num_computed_tokens = num_computed  # nothing else is in flight
            num_forced = len(sequence.request.forced_token_ids)
            if sequence.num_output_tokens - len(token_ids) >= num_forced:  # they were guesses
                self._drafter.observe(sequence, num_drafts, num_accepted)
        # Mostly no block became full.
        if num_computed // self._block_size > sequence.table.num_published and (
            sequence.status is not SequenceStatus.WAITING
        ):
            self._allocator.publish(sequence, num_computed)

    def observe(self, output: SchedulerOutput, seconds: float) -> None:
        """Tells how long the step took, for the cost model and for the queue's age."""
        prefills = output.scheduled[output.num_decodes :]
        pairs = sum(num_pairs(item.start, item.num_tokens) for item in prefills)
        num_decode, num_prefill = output.num_decode_tokens, output.num_prefill_tokens
        self._cost.observe(num_decode, num_prefill, pairs, seconds)
        self._admission.computed(num_prefill, output.num_decodes, len(prefills))

    def check(self) -> None:
        """Raises BlockPoolError unless every block is accounted for."""
        self._allocator.check(self.sequences())

    def _decoding(self) -> list[Sequence]:
        decode = SequenceStatus.DECODE
        return [seq for seq in self._running.values() if seq.status is decode]

    def _grow_decodes(self, now_s: float) -> tuple[list[Sequence], list[Sequence]]:
        """Sequences that decode and are sure to go on behind what is in flight, each with a block
        for its next token; and those that had to give theirs. Where some end with what is in
        flight, nobody has to: who finds no block sits this step out."""
        decode = SequenceStatus.DECODE
        decoding: list[Sequence] = []
        growing: list[Sequence] = []
        is_one_ending = False
        for sequence in self._running.values():
            if sequence.status is not decode:
                continue
            length = len(sequence.token_ids) + sequence.num_pending
            if length >= sequence.length_limit:
                is_one_ending = True
                continue
            decoding.append(sequence)
            if length > sequence.num_slots:
                growing.append(sequence)
        preempted: list[Sequence] = []
        for sequence in sorted(growing, key=seniority) if len(growing) > 1 else growing:
            while sequence.status is decode and not self._allocator.grow(sequence):
                if is_one_ending:
                    decoding.remove(sequence)
                    break
                running, shares = self._running.values(), self._admission.shares
                preempted.append(choose_victim(running, self._allocator, shares))
                self._preempt(preempted[-1], now_s)
        return decoding, preempted

    def _make_way(self, now_s: float, copies: list[BlockCopy]) -> list[Sequence]:
        """One sequence at most gives its place to a user who has none; returns it. The place is
        taken at once, or, where more blocks are needed, after some more steps like this."""
        if self._may_admit():
            return []
        starved = self._admission.starved(now_s)
        if starved is None or self._admission.awaited(starved) is not None:
            return []
        givers = choose_givers(self._running.values(), starved, self._admission.shares)
        if not givers or not self._admission.would_fit(starved, self._running.values(), givers):
            return []
        self._preempt(givers[0], now_s)
        self._admit(starved, copies)
        return givers[:1]

    def _preempt(self, sequence: Sequence, now_s: float) -> None:
        del self._running[sequence.request_id]
        self._admission.preempt(sequence, now_s)
        self.num_preemptions += 1

    def _schedule_decodes(
        self, decoding: list[Sequence], *, may_draft: bool
    ) -> list[ScheduledSequence]:
        """One token for each, and behind it as many drafts as the token budget, the blocks that
        are free and the sequence's own limits allow. Drafts leave a chunk's room to prompts."""
        num_decoding = len(decoding)
        scheduled: list[ScheduledSequence] = []
        may_guess = may_draft and num_decoding <= self._drafter.max_batch
        left = self._limits.max_num_batched_tokens - num_decoding
        if self.num_waiting or len(self._running) > num_decoding:
            left = max(0, left - self._limits.min_chunk_tokens)
        for sequence in decoding:
            start, num_pending = sequence.num_computed_tokens, sequence.num_pending
            drafts: tuple[int, ...] = ()
            if may_draft and num_pending == 0 and (may_guess or sequence.request.forced_token_ids):
                drafts = self._draft(sequence, left, num_decoding, may_guess=may_guess)
                left -= len(drafts)
            scheduled.append(
                ScheduledSequence(sequence, start, 1 + len(drafts), True, drafts, num_pending > 0)
            )
            sequence.num_computed_tokens = start + 1 + len(drafts)
            sequence.num_pending = num_pending + 1
        return scheduled

    def _draft(
        self, sequence: Sequence, limit: int, num_decoding: int, *, may_guess: bool
    ) -> tuple[int, ...]:
        """What must come next, where that is known, is a draft that is always right."""
        limit = min(limit, sequence.length_limit - sequence.num_tokens - 1)
        # Before the drafter is asked: it goes by what it proposed.
        limit = min(limit, self._allocator.room_ahead(sequence))
        if limit <= 0:
            return ()
        drafts = sequence.forced_token_ids[:limit]
        if may_guess and not drafts:
            drafts = self._drafter.propose(sequence, limit, num_decoding)
        if not drafts or not self._allocator.grow(sequence, num_ahead=len(drafts)):
            return ()
        return drafts

    def _schedule_prefills(
        self, num_decode: int, now_s: float, copies: list[BlockCopy], *, admit: bool
    ) -> list[ScheduledSequence]:
        """Chunks of prompts, most urgent first; waiting sequences are admitted on the way, and
        the copies that they need are added to `copies`."""
        budget = self._prefill_budget(num_decode)
        if budget.is_spent:
            return []
        scheduled: dict[RequestId, ScheduledSequence] = {}
        admission = self._admission
        can_admit = admit and self._may_admit()
        started = [seq for seq in self._running.values() if seq.status is SequenceStatus.PREFILL]
        candidates = admission.candidates(started, waiting=can_admit)
        while candidates and not budget.is_spent:
            sequence = candidates.pop()
            if sequence.status is SequenceStatus.WAITING:
                if sequence.num_pending:
                    continue
                awaited = admission.awaited(sequence)
                if awaited is not None:
                    if awaited.status is not SequenceStatus.PREFILL:
                        continue  # what it waits for is in flight, and there once it is committed
                    sequence = awaited  # is computed now, in the place of the one that waits for it
                elif not self._admit(sequence, copies):
                    # No overtaking once one does not fit: it would starve.
                    candidates.drop_waiting()
                    continue
            if sequence.request_id not in scheduled:
                start, wanted = sequence.num_computed_tokens, sequence.num_remaining_tokens
                if sequence.num_cached_tokens is None:
                    sequence.num_cached_tokens = start
                    sequence.first_scheduled_s = now_s
                count = budget.take(start, wanted)
                item = ScheduledSequence(sequence, start, count, samples=count == wanted)
                scheduled[sequence.request_id] = item
        return list(scheduled.values())

    def _may_admit(self) -> bool:
        return len(self._running) < self._limits.max_num_seqs and not self._admission.is_blocked

    def _admit(self, sequence: Sequence, copies: list[BlockCopy]) -> bool:
        if len(self._running) >= self._limits.max_num_seqs:
            return False
        made = self._admission.admit(sequence, self._running.values())
        if made is None:
            return False
        self._running[sequence.request_id] = sequence
        copies += made
        return True

    def _prefill_budget(self, num_decode: int) -> PrefillBudget:
        limits = self._limits
        decode_s = self._cost.decode_seconds(num_decode)
        if num_decode:
            # Where decodes alone come near the target or miss it, prompts still get half the
            # time: streams slow down by two at the most, and nobody waits for all of them to end.
            seconds = max(limits.step_time_target_s - decode_s, decode_s)
        else:
            seconds = limits.prefill_step_time_target_s - decode_s
        return PrefillBudget(
            self._cost,
            limits.max_num_batched_tokens - num_decode,
            seconds,
            min_tokens=limits.min_chunk_tokens,
            is_due=(
                not num_decode or self._steps_without_prefill + 1 >= limits.max_prefill_gap_steps
            ),
        )
