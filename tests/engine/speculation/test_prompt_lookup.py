"""What the drafter gains and loses, on a simulated machine whose steps take a known time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from engine.scheduling.scheduler_output import ScheduledSequence, SchedulerOutput
from engine.scheduling.sequence import Sequence as EngineSequence
from engine.speculation.prompt_lookup import PromptLookupDrafter
from tests.support.engines import make_request

Cost = Callable[[int], float]
"""Seconds of a step by its rows."""

FLAT: Cost = lambda rows: 0.01  # noqa: E731
SLOPE: Cost = lambda rows: 0.01 * (0.9 + 0.1 * rows)  # noqa: E731
JUMP: Cost = lambda rows: 0.01 if rows <= 4 else 0.02  # noqa: E731
SECOND_ROW: Cost = lambda rows: 0.01 if rows == 1 else 0.019 + 0.0001 * rows  # noqa: E731
ROW_BY_ROW: Cost = lambda rows: 0.01 * rows  # noqa: E731
MACHINES = {
    "flat": FLAT,
    "slope": SLOPE,
    "jump": JUMP,
    "second_row": SECOND_ROW,
    "row_by_row": ROW_BY_ROW,
}

NOISE = random.Random(3)
PASSAGE = tuple(NOISE.randrange(5000) for _ in range(300))
FRESH = tuple(range(10_000, 10_400))
"""Tokens that nothing repeats."""


@dataclass
class Machine:
    """Plays answers that are known, one sequence at a time, and keeps the time."""

    cost: Cost
    drafter: PromptLookupDrafter = field(default_factory=PromptLookupDrafter)
    num_played: int = 0
    num_drafted: int = 0

    def speedup(self, prompt: Sequence[int], answer: Sequence[int]) -> float:
        """Time without drafts over time with them, from the answer's first token on."""
        sequence = EngineSequence(make_request(f"r{self.num_played}", tuple(prompt)), arrival_s=0.0)
        self.num_played += 1
        sequence.token_ids.append(answer[0])
        seconds, done = 0.0, 1
        while done < len(answer):
            drafts = self.drafter.propose(sequence, len(answer) - done - 1, 1)
            assert len(drafts) <= max(0, len(answer) - done - 1)
            accepted = 0
            while accepted < len(drafts) and drafts[accepted] == answer[done + accepted]:
                accepted += 1
            sequence.token_ids += answer[done : done + accepted + 1]
            done += accepted + 1
            if drafts:
                self.num_drafted += len(drafts)
                self.drafter.observe(sequence, len(drafts), accepted)
            seconds += self.step(sequence, drafts)
        self.drafter.forget(sequence)
        return (len(answer) - 1) * self.cost(1) / seconds

    def step(self, sequence: EngineSequence, drafts: tuple[int, ...]) -> float:
        rows = 1 + len(drafts)
        item = ScheduledSequence(sequence, sequence.num_tokens - 1, rows, True, drafts)
        seconds = self.cost(rows)
        self.drafter.observe_step(SchedulerOutput((item,), num_decode_tokens=rows), seconds)
        return seconds


def quoting(start: int, count: int) -> tuple[int, ...]:
    """A few words of its own, then a quote."""
    return (*FRESH[:4], *PASSAGE[start : start + count], *FRESH[4:8])


def misleading(num_tokens: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Prompt and answer in which every second pair of tokens stood before, and what followed it
    there never follows again."""
    pairs = [(20_000 + i, 30_000 + i) for i in range(num_tokens // 3)]
    prompt = tuple(token for a, b in pairs for token in (a, b, 40_000 + a))
    answer = tuple(token for a, b in pairs for token in (a, b, 50_000 + a))
    return prompt, answer


def test_a_quote_is_copied_where_rows_cost_little() -> None:
    assert Machine(FLAT).speedup(PASSAGE, quoting(50, 60)) > 3.0
    assert Machine(SLOPE).speedup(PASSAGE, quoting(50, 60)) > 2.0
    assert Machine(JUMP).speedup(PASSAGE, quoting(50, 60)) > 2.0


def test_even_where_a_second_row_doubles_the_step_long_quotes_pay() -> None:
    machine = Machine(SECOND_ROW)
    speedups = [machine.speedup(PASSAGE, quoting(start, 200)) for start in (0, 30, 60)]
    assert speedups[-1] > 1.5


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("num_tokens", [20, 60, 300])
def test_an_answer_that_repeats_nothing_loses_nothing(name: str, num_tokens: int) -> None:
    machine = Machine(MACHINES[name])
    assert machine.speedup(PASSAGE, FRESH[:num_tokens]) == pytest.approx(1.0)
    assert machine.num_drafted == 0


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("num_tokens", [30, 60, 300])
def test_guesses_that_are_always_wrong_cost_three_percent_at_most(
    name: str, num_tokens: int
) -> None:
    machine = Machine(MACHINES[name])
    for start in range(4):  # the machine's own costs are known by then
        machine.speedup(PASSAGE, quoting(start, 100))
    assert machine.speedup(*misleading(num_tokens)) >= 0.97


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", MACHINES)
def test_guesses_that_are_right_by_chance_never_cost_more(name: str, seed: int) -> None:
    """Texts of a few words in any order: many matches, most of them worth little."""
    noise = random.Random(seed)
    machine = Machine(MACHINES[name])
    machine.speedup(PASSAGE, quoting(0, 100))
    words = noise.choice((4, 10, 30))
    text = [noise.randrange(words) for _ in range(500)]
    assert machine.speedup(text[:300], text[300:]) >= 0.97


def test_where_a_row_costs_a_step_nothing_is_lost_for_nothing_is_won() -> None:
    machine = Machine(ROW_BY_ROW)
    for start in range(3):
        machine.speedup(PASSAGE, quoting(start, 100))
    machine.num_drafted = 0
    changed = [token if place % 6 else 90_000 + place for place, token in enumerate(PASSAGE)]
    assert machine.speedup(PASSAGE, changed) >= 0.97
    assert machine.num_drafted <= 60, "a few tries and probes"


def test_a_quote_after_a_long_text_of_its_own_is_noticed() -> None:
    machine = Machine(SLOPE)
    own = machine.speedup(PASSAGE, FRESH[:300])
    assert own == pytest.approx(1.0)
    both = machine.speedup(PASSAGE, (*FRESH[:300], *PASSAGE[100:200]))
    assert both > 400 / (300 + 100 / 2.0)


def test_what_no_longer_pays_ends_and_what_pays_again_is_found() -> None:
    """Other programs take the second core for a while, and give it back."""
    machine = Machine(SLOPE)
    assert machine.speedup(PASSAGE, quoting(0, 200)) > 2.0
    machine.cost = ROW_BY_ROW
    machine.speedup(PASSAGE, quoting(0, 200))
    assert machine.speedup(PASSAGE, quoting(0, 250)) >= 0.97
    machine.cost = SLOPE
    speedups = [machine.speedup(PASSAGE, quoting(0, 250)) for _ in range(8)]
    assert speedups[-1] > 2.0


def test_a_large_batch_has_no_drafts() -> None:
    drafter = PromptLookupDrafter(max_batch=2)
    sequence = EngineSequence(make_request("r", (1, 2, 3, 4, 5, 1, 2, 3)), arrival_s=0.0)
    for rows in (1, 2):
        for _ in range(5):
            drafter.observe_step(
                SchedulerOutput((ScheduledSequence(sequence, 7, 1, True),), num_decode_tokens=rows),
                0.01,
            )
    assert drafter.propose(sequence, 8, 3) == ()
    assert drafter.propose(sequence, 8, 2)[:1] == (4,)
    assert drafter.propose(sequence, 8, 1)[:1] == (4,)


def test_a_step_with_a_prompt_in_it_says_nothing_about_rows() -> None:
    machine = Machine(FLAT)
    sequence = EngineSequence(make_request("p", 64), arrival_s=0.0)
    slow = SchedulerOutput(
        (ScheduledSequence(sequence, 0, 64, True),), num_decode_tokens=1, num_prefill_tokens=64
    )
    for _ in range(20):
        machine.drafter.observe_step(slow, 5.0)
    assert machine.drafter.propose(sequence, 8, 1) == (), "no step of one row was seen yet"
    assert machine.speedup(PASSAGE, quoting(50, 60)) > 3.0


def test_sequences_of_one_step_share_what_rows_cost() -> None:
    """Where four rows are free and the fifth doubles the step, two sequences use four."""
    drafter = PromptLookupDrafter()
    sequences = [
        EngineSequence(make_request(f"r{i}", (*PASSAGE, *PASSAGE[:20])), arrival_s=0.0)
        for i in range(2)
    ]
    for _ in range(40):
        total = 0
        for sequence in sequences:
            drafts = drafter.propose(sequence, 8, 2)
            total += 1 + len(drafts)
            sequence.token_ids += PASSAGE[sequence.num_tokens - 300 :][: 1 + len(drafts)]
            if drafts:
                drafter.observe(sequence, len(drafts), len(drafts))
        items = tuple(ScheduledSequence(s, 0, 1, True) for s in sequences)
        # Eight times dearer beyond four rows: no number of right guesses makes up for that.
        drafter.observe_step(
            SchedulerOutput(items, num_decode_tokens=total), 0.01 if total <= 4 else 0.08
        )
    assert total == 4


def test_an_ended_sequence_leaves_nothing_behind() -> None:
    machine = Machine(FLAT)
    machine.speedup(PASSAGE, quoting(0, 30))
    assert machine.drafter._looked == {}
