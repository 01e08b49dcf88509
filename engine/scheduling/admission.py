"""`Admission`: which waiting sequence gets blocks next, and whether there is room for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable

from engine.kv.block_allocator import BlockAllocator, BlockCopy
from engine.scheduling.candidates import Candidates
from engine.scheduling.fair_shares import DECODE_WEIGHT, FairShares
from engine.scheduling.output_lengths import OutputLengths, growth_reserve
from engine.scheduling.prompt_groups import PromptGroups
from engine.scheduling.queues import WaitingQueue
from engine.scheduling.sequence import Sequence, SequenceStatus
from engine.types import RequestId

GROWTH_SHARE = 0.5
"""Of the growth that is expected, what is kept free. Answers are of all lengths, and a preemption
costs a prompt's recomputation, which is cheap beside decoding with less company. Simulated on
pools of a quarter of the demand (scripts/simulate_scheduling.py): at 1 hardly anybody is
preempted, but fewer run at once and up to 7 % less comes out; at 0 there are up to three times as
many preemptions as at 0.5, for no more output."""

STARVED_AFTER_S = 2.0
"""A user of whom nothing runs waits so long until somebody who has several must give one up; mostly
an answer ends before that, and nothing has to be computed again."""

NUM_LOOKED_AT = 32
"""Waiting sequences whose work is estimated anew in a step, in turn: the prefix cache changes with
every step, and hundreds may wait."""


class Admission:
    """The queue, and all that is known about who should leave it. Owned by the engine thread."""

    def __init__(self, allocator: BlockAllocator, max_model_len: int) -> None:
        self._allocator = allocator
        self._max_model_len = max_model_len
        self.shares = FairShares()
        self._lengths = OutputLengths()
        self._groups = PromptGroups()
        self._to_look_at: OrderedDict[RequestId, Sequence] = OrderedDict()
        """Who waits, the one that was looked at longest ago first."""
        self.waiting = WaitingQueue()
        self.num_forks = 0
        self.is_blocked = False
        """The first in the queue did not fit, and nothing has changed since: until then nobody
        needs to be looked at, however many wait."""

    def add(self, sequence: Sequence) -> None:
        """A new request."""
        self.shares.add(sequence.request.user)
        self._enqueue(sequence)

    def preempt(self, sequence: Sequence, now_s: float) -> None:
        """A running sequence gives its blocks back and waits again."""
        self._groups.leave(sequence)
        self._allocator.free(sequence)
        sequence.status = SequenceStatus.WAITING
        sequence.num_preemptions += 1
        sequence.waiting_since_s = now_s
        self._enqueue(sequence)

    def finish(self, sequence: Sequence) -> None:
        """The sequence has ended, wherever it was."""
        if sequence in self.waiting:
            self._dequeue(sequence)
        else:
            self._groups.leave(sequence)
        self._allocator.free(sequence)
        self.shares.finish(sequence.request.user)
        if sequence.num_output_tokens:
            self._lengths.observe(sequence.num_output_tokens)
        self.is_blocked = False

    def computed(self, num_prefill: int, num_decode: int, num_prefilling: int) -> None:
        """A step has computed so many tokens, while so many running sequences had prompts left."""
        self.waiting.advance(num_prefill + DECODE_WEIGHT * num_decode, num_prefilling)

    def candidates(self, started: Iterable[Sequence], *, waiting: bool) -> Candidates:
        """Those that have prompts to compute: the `started`, and, if asked for, who waits."""
        works = [(sequence, sequence.num_remaining_tokens) for sequence in started]
        if waiting:
            self._look_again()
            works += [(sequence, sequence.work_left) for sequence in self.waiting]
        return Candidates(works, self.shares)

    def starved(self, now_s: float) -> Sequence | None:
        """The first of those who have waited long and of whose users nothing runs."""
        users = self.shares.without_running()
        waiting = [
            sequence
            for sequence in (self.waiting if users else ())
            if sequence.request.user in users
            and sequence.num_pending == 0
            and now_s - sequence.waiting_since_s >= STARVED_AFTER_S
        ]
        return min(
            waiting, key=lambda seq: (seq.request.priority, seq.waiting_since_s), default=None
        )

    def awaited(self, sequence: Sequence) -> Sequence | None:
        """The running sequence that is computing what this waiting one could then share: its
        prompt, for another choice of one request, or the next block of its prefix."""
        if self._groups.source(sequence) is not None:
            return None
        return self._groups.computing(sequence) or self._allocator.computing(sequence)

    def would_fit(
        self, sequence: Sequence, running: Collection[Sequence], without: Collection[Sequence]
    ) -> bool:
        """Whether a waiting sequence could be admitted if `without` did not run."""
        num_shared = self._allocator.num_cached_tokens(sequence) // self._allocator.block_size
        rest = [other for other in running if other not in without]
        reserve = self._reserve(sequence, num_shared, rest)
        return self._allocator.would_fit(sequence, reserve, without)

    def admit(self, sequence: Sequence, running: Collection[Sequence]) -> list[BlockCopy] | None:
        """Gives a waiting sequence blocks: for all its tokens, and only if that leaves what those
        who run, and itself, will likely still need. Returns the copies to be made before the next
        forward; None if it does not fit."""
        num_shared = self._allocator.num_cached_tokens(sequence)
        source = self._groups.source(sequence)
        if source is not None and num_shared >= sequence.num_prompt_tokens - 1:
            source = None  # the prefix cache has as much
        if source is not None:
            num_shared = sequence.num_prompt_tokens - 1
        reserve = self._reserve(sequence, num_shared // self._allocator.block_size, running)
        copies: list[BlockCopy] | None
        if source is not None:
            copies = self._allocator.fork(sequence, source, reserve_blocks=reserve)
        else:
            is_admitted = self._allocator.admit(sequence, reserve_blocks=reserve)
            copies = [] if is_admitted else None
        if copies is None:
            self.is_blocked = True
            return None
        self.num_forks += source is not None
        self._allocator.keep_room(sequence, self._expected_more(sequence))
        self._dequeue(sequence)
        self._groups.enter(sequence)
        sequence.status = SequenceStatus.PREFILL
        if sequence.num_preemptions == 0:
            self.shares.charge(sequence.request.user, sequence.num_remaining_tokens)
        return copies

    def _look(self, sequence: Sequence) -> None:
        """What a waiting sequence would have to compute if it were admitted now."""
        num_given = self._allocator.num_cached_tokens(sequence)
        if self._groups.source(sequence) is not None:
            num_given = max(num_given, sequence.num_prompt_tokens - 1)
        sequence.work_left = sequence.num_tokens - num_given

    def _look_again(self) -> None:
        """At some of those that wait, in turn."""
        for _ in range(min(NUM_LOOKED_AT, len(self._to_look_at))):
            request_id, sequence = next(iter(self._to_look_at.items()))
            self._look(sequence)
            self._to_look_at.move_to_end(request_id)

    def _enqueue(self, sequence: Sequence) -> None:
        self.waiting.add(sequence)
        self._to_look_at[sequence.request_id] = sequence
        self._look(sequence)
        self.shares.wait(sequence.request.user)
        sequence.account = self.shares.account(sequence.request.user)
        self.is_blocked = False

    def _dequeue(self, sequence: Sequence) -> None:
        self.waiting.remove(sequence)
        del self._to_look_at[sequence.request_id]
        self.shares.leave(sequence.request.user)
        self.is_blocked = False

    def _reserve(self, sequence: Sequence, num_shared: int, running: Collection[Sequence]) -> int:
        """Blocks that should stay free for growth if `sequence` joins `running`, or more where
        there is room for these, too. Nothing runs: none, since whatever is accepted fits alone."""
        if not running:
            return 0
        # Mostly there is plenty of room, and then it need not be told who will grow by how much.
        most = self._most_reserved(running)
        num_blocks = self._allocator.num_blocks_for(sequence.num_tokens)
        if num_blocks + most <= self._allocator.pool.num_available:
            return most
        blocks = [(seq, len(seq.table.blocks) - seq.table.num_shared) for seq in running]
        num_own = self._allocator.num_blocks_for(sequence.num_tokens) - num_shared
        growing = [
            (num_blocks, max(1, int(GROWTH_SHARE * self._expected_more(seq))))
            for seq, num_blocks in (*blocks, (sequence, num_own))
        ]
        return growth_reserve(growing, self._allocator.block_size)

    def _most_reserved(self, running: Collection[Sequence]) -> int:
        """No less than the growth of one more than `running`, if all grow by what is the most that
        `_expected_more` says of anybody."""
        longest = max([len(seq.token_ids) - seq.num_prompt_tokens for seq in running])
        num_tokens = max(1, int(GROWTH_SHARE * max(self._lengths.longest, longest // 2)))
        return (len(running) + 1) * self._allocator.num_blocks_for(num_tokens)

    def _expected_more(self, sequence: Sequence) -> int:
        """Tokens that the sequence will likely get yet."""
        count = self._lengths.expected_more(sequence.num_output_tokens)
        max_tokens = sequence.request.params.max_tokens
        if max_tokens is not None:
            count = min(count, max_tokens - sequence.num_output_tokens)
        return max(1, min(count, self._max_model_len - sequence.num_tokens))
