"""`Sequence`: one request's state inside the engine."""

from __future__ import annotations

from enum import StrEnum

from engine.kv.block_table import BlockTable
from engine.kv.prefix_cache import BlockHash
from engine.scheduling.fair_shares import Account
from engine.types import GenerationRequest, RequestId


class SequenceStatus(StrEnum):
    """WAITING → PREFILL → DECODE → FINISHED; preemption leads back to WAITING."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


class Sequence:
    """Tokens, blocks and counts of one request. Owned by the engine thread.

    `token_ids` = prompt + continued tokens + output; of these, half-open:
    [0, num_prompt_tokens) was given, [num_prompt_tokens, num_tokens) was sampled here, and
    [0, num_computed_tokens) has keys and values in the cache, or will have them when the steps
    in flight are done. Behind `num_tokens` come `num_pending` tokens that those steps sample:
    they count in `length`, and nobody knows them yet."""

    __slots__ = (
        "account",
        "arrival_age",
        "arrival_s",
        "block_hashes",
        "first_scheduled_s",
        "first_token_s",
        "length_limit",
        "num_blocks_seen_cached",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_pending",
        "num_preemptions",
        "num_prompt_tokens",
        "num_slots",
        "request",
        "request_id",
        "seed",
        "status",
        "table",
        "token_ids",
        "waiting_since_s",
        "work_left",
    )

    def __init__(self, request: GenerationRequest, *, arrival_s: float, seed: int = 0) -> None:
        self.request = request
        self.account = Account()
        """What is computed for the sequence is charged to it (`FairShares`)."""
        self.request_id: RequestId = request.request_id
        self.token_ids = [*request.prompt_token_ids, *request.continued_token_ids]
        self.num_prompt_tokens = len(self.token_ids)
        self.num_computed_tokens = 0
        self.num_pending = 0
        self.length_limit = 1 << 62
        """The sequence ends when it has so many tokens, if nothing ends it before
        (`Scheduler.add`)."""
        self.num_cached_tokens: int | None = None
        """Prompt tokens that were not computed for this sequence when it was first scheduled:
        from the prefix cache, or from the request with the same prompt. None before."""
        self.num_blocks_seen_cached = 0
        """Where `BlockAllocator.num_cached_tokens` begins to look."""
        self.status = SequenceStatus.WAITING
        self.table = BlockTable()
        self.num_slots = 0
        """Tokens that the table has a place for."""
        self.block_hashes: list[BlockHash] = []
        """Chained hashes of the leading full blocks, as far as somebody asked for them; tokens
        are only ever appended, so they stay true."""
        self.seed = seed
        self.arrival_s = arrival_s
        self.waiting_since_s = arrival_s
        """When it was last put into the queue."""
        self.arrival_age = 0.0
        """What the queue's age was when this came (`WaitingQueue`), in tokens."""
        self.work_left = self.num_prompt_tokens
        """While it waits: tokens to compute before it samples, as `Admission` saw it last."""
        self.first_scheduled_s: float | None = None
        self.first_token_s: float | None = None
        self.num_preemptions = 0

    @property
    def num_tokens(self) -> int:
        """All tokens known so far."""
        return len(self.token_ids)

    @property
    def length(self) -> int:
        """All tokens, those that steps in flight are sampling included."""
        return len(self.token_ids) + self.num_pending

    @property
    def num_output_tokens(self) -> int:
        """Tokens sampled for this request."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def forced_token_ids(self) -> tuple[int, ...]:
        """What the next tokens of the output must be."""
        forced = self.request.forced_token_ids
        return forced[self.num_output_tokens :] if forced else forced

    @property
    def num_remaining_tokens(self) -> int:
        """Tokens that must be computed before the next one can be sampled."""
        return len(self.token_ids) + self.num_pending - self.num_computed_tokens
