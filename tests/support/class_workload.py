"""A class of students as the prefix cache sees it: prompts that share a course's beginning and its
popular passages, conversations that grow, and long prompts that nobody sends again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from engine.kv.block_allocator import BlockAllocator
from engine.scheduling.sequence import Sequence
from engine.types import GenerationRequest, RequestId, SamplingParams

BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class ClassWorkload:
    """Sizes in blocks. A passage's popularity falls with its rank, as 1/rank."""

    num_prompts: int = 3000
    num_courses: int = 6
    course_blocks: int = 16
    num_passages: int = 12
    passage_blocks: int = 8
    num_students: int = 60
    turn_blocks: int = 6
    one_off_share: float = 0.3
    one_off_blocks: int = 40
    leave_share: float = 0.3
    """Of the turns, those after which the student begins anew."""

    def prompts(self, seed: int = 0) -> Iterator[tuple[int, ...]]:
        """Prompts in the order they are sent: beginning, history, passage, question."""
        random = Random(seed)
        next_id = iter(range(1_000_000, 1 << 40))

        def fresh(num_blocks: int) -> tuple[int, ...]:
            return tuple(next(next_id) for _ in range(num_blocks * BLOCK_SIZE))

        beginnings = [fresh(self.course_blocks) for _ in range(self.num_courses)]
        passages = [
            [fresh(self.passage_blocks) for _ in range(self.num_passages)]
            for _ in range(self.num_courses)
        ]
        popularity = list(accumulate(1 / rank for rank in range(1, self.num_passages + 1)))
        histories: dict[int, tuple[int, ...]] = {}
        for _ in range(self.num_prompts):
            if random.random() < self.one_off_share:
                yield fresh(self.one_off_blocks)
                continue
            student = random.randrange(self.num_students)
            course = student % self.num_courses
            history = histories.get(student, ())
            passage = random.choices(passages[course], cum_weights=popularity)[0]
            yield (*beginnings[course], *history, *passage, *fresh(1))
            histories[student] = history + fresh(self.turn_blocks)
            if random.random() < self.leave_share:
                del histories[student]


def hit_rate(workload: ClassWorkload, num_blocks: int, protected_share: float) -> float:
    """Prompt tokens that came from the cache, as a share of all, one prompt after the other."""
    allocator = BlockAllocator(num_blocks, BLOCK_SIZE, protected_share=protected_share)
    for index, prompt in enumerate(workload.prompts()):
        request = GenerationRequest(RequestId(f"r{index}"), prompt, SamplingParams())
        sequence = Sequence(request, arrival_s=0.0)
        assert allocator.admit(sequence)
        sequence.num_computed_tokens = sequence.num_tokens
        allocator.publish(sequence)
        allocator.free(sequence)
    allocator.check(())
    return allocator.num_hit_tokens / allocator.num_lookup_tokens
