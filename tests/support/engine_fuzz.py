"""`EngineFuzz`: an engine around a real model under random requests, cancels, deadlines and stops,
in a cache that is too small for them, with steps in flight and graphs captured in between."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from engine.types import FinishType, GenerationRequest, RequestId, RequestOutput, SamplingParams
from tests.support.engines import Collected, collect, run_to_end
from tests.support.gpu_engines import make_engine, make_plain_engine
from tests.support.tiny_models import VOCAB_SIZE

SETTINGS: dict[str, Any] = {
    "max_model_len": 128,
    "max_num_seqs": 12,
    "max_num_batched_tokens": 96,
    # Not two sequences of full length.
    "kv_cache_tokens": 224,
}
MAX_WAITING = 20
CUT = ("cancelled", "deadline")
"""Ends that come from outside: the answer is the beginning of the one that the request gets
alone."""
_PREFIXES = [tuple((i * i + 7 * n) % 310 + 4 for i in range(n)) for n in (0, 20, 40, 64)]
_STOPS = ((), (), ("a", "e", "i", "o", "u"), ("st", "<", "3"))
_SAMPLING: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.0, "repetition_penalty": 1.2, "frequency_penalty": 0.4},
    {"temperature": 0.9, "top_p": 0.9},
    {"temperature": 1.2, "top_k": 30, "presence_penalty": 0.5},
    {"temperature": 1.4, "min_p": 0.05, "logit_bias": ((11, 3.0), (200, -50.0))},
)


class _TickingClock:
    """Moves half a millisecond each time it is read: the same seed gives the same history."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.0005
        return self.now_s


class EngineFuzz:
    """One engine and what was asked of it; all choices come from `seed`. `settings` are fields of
    its configuration."""

    def __init__(self, folder: Path, seed: int, **settings: Any) -> None:
        self._folder = folder
        self._random = Random(seed)
        self._settings = SETTINGS | settings
        self.core, self.runner = make_engine(folder, **self._settings)
        self._clock = self.core._clock = _TickingClock()
        self._requests: dict[str, GenerationRequest] = {}
        self._collected: dict[str, Collected] = {}
        self.events: Counter[str] = Counter()

    def play(self, num_events: int, *, check_every: int = 10) -> None:
        """So many events, the books checked between them; then everything comes to its end."""
        for number in range(num_events):
            self._play_one()
            if number % check_every == 0:
                self._check()
        while self.core.has_work:
            self._step(1)
        self._check()
        self._check_end()

    def compare(self, count: int) -> None:
        """Compares the answers to `count` of the requests with those that each gets alone from
        torch's own operations on the CPU."""
        core = make_plain_engine(self._folder, **(self._settings | {"kv_cache_tokens": 1024}))
        names = list(self._requests)
        for name in self._random.sample(names, min(count, len(names))):
            core.add(replace(self._requests[name], deadline_s=None, same_prompt_as=None))
            expected, got = run_to_end(core)[name], self._collected[name]
            if got.finish_type in CUT:
                assert got.token_ids == expected.token_ids[: len(got.token_ids)], name
                assert expected.text.startswith(got.text), name
            else:
                assert got.token_ids == expected.token_ids, name
                assert (got.text, got.finish_type) == (expected.text, expected.finish_type), name
            _compare_logprobs(got, expected)

    def report(self) -> Counter[str]:
        """How often each thing happened."""
        stats = self.core.stats()
        report = Counter(self.events)
        report.update(
            requests=len(self._requests),
            preemptions=stats.num_preemptions,
            forks=stats.num_forks,
            cached_tokens=stats.cached_tokens,
            generated_tokens=stats.generated_tokens,
        )
        report.update(got.finish_type for got in self._collected.values())
        return report

    def _play_one(self) -> None:
        choice = self._random.random()
        if choice < 0.27 and self.core.stats().num_waiting < MAX_WAITING:
            self._submit()
        elif choice < 0.34 and self._requests:
            self._abort()
        elif choice < 0.37:
            self.events["captures"] += self.core.idle()
        else:
            self._step(self._random.randrange(1, 3))

    def _submit(self) -> None:
        """One prompt, mostly for one request, sometimes for several choices of it."""
        random = self._random
        tail = tuple(random.randrange(4, VOCAB_SIZE) for _ in range(random.randrange(1, 40)))
        prompt = random.choice(_PREFIXES) + tail
        first = f"r{len(self._requests)}"
        num_choices = random.choice((1, 1, 1, 1, 2, 3))
        sampling = random.choice(_SAMPLING)
        stop = random.choice(_STOPS)
        options: dict[str, Any] = {
            "max_tokens": random.choice((None, 1, 8, 20, 40, 40)),
            "stop_token_ids": random.choice(((), (), (), tuple(range(4, 10)))),
            "ignore_eos": random.random() < 0.5,
            "min_tokens": random.choice((0, 0, 5)),
            "logprobs": random.choice((None, None, None, 3)),
        }
        salt, user = random.choice(("", "", "s")), random.choice(("", "a", "b"))
        priority = random.choice((0, 0, 0, 1))
        for index in range(num_choices):
            name = f"r{len(self._requests)}"
            deadline_s = None
            if random.random() < 0.15:
                deadline_s = self._clock.now_s + random.random() * 0.1
            request = GenerationRequest(
                RequestId(name),
                prompt,
                SamplingParams(seed=len(self._requests), stop=stop, **options, **sampling),
                cache_salt=salt,
                user=user,
                priority=priority,
                deadline_s=deadline_s,
                same_prompt_as=RequestId(first) if index else None,
            )
            self._requests[name] = request
            self.core.add(request)

    def _abort(self) -> None:
        """Mostly of one that may still run; of one that has ended it changes nothing."""
        name = self._random.choice(list(self._requests)[-24:])
        has_ended = name in self._collected and self._collected[name].finish is not None
        outputs = self.core.abort(RequestId(name), FinishType.CANCELLED)
        assert len(outputs) == (not has_ended), name
        self._collect(outputs)

    def _step(self, count: int) -> None:
        for _ in range(count):
            if not self.core.has_work:
                return
            self.events["steps"] += 1
            self._collect(self.core.step())
            self.events["steps_with_others_in_flight"] += len(self.core._in_flight) > 0

    def _collect(self, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            collect(self._collected, output)

    def _check(self) -> None:
        self.core.check()
        stats = self.core.stats()
        assert stats.free_blocks + stats.cached_blocks + stats.used_blocks == stats.total_blocks

    def _check_end(self) -> None:
        """Everybody has an end, and nobody has left anything behind."""
        assert set(self._collected) == set(self._requests)
        assert all(got.finish is not None for got in self._collected.values())
        stats = self.core.stats()
        assert (stats.used_blocks, stats.num_running, stats.num_waiting) == (0, 0, 0)
        assert stats.num_finished == len(self._requests)
        assert not self.core._sequences
        assert not self.core._readers
        assert not self.core._allocator._computing
        slots = self.runner._slots
        assert not slots._slots
        assert sorted(slots._free) == list(range(slots.num_slots))


def _compare_logprobs(got: Collected, expected: Collected) -> None:
    pairs = zip(
        [one for output in got.outputs for one in output.logprobs],
        [one for output in expected.outputs for one in output.logprobs],
        strict=False,  # the answer may have been cut
    )
    for one, other in pairs:
        assert one.token_id == other.token_id
        assert abs(one.logprob - other.logprob) < 1e-3
        assert len(one.top) == len(other.top)
        for (_, value), (_, other_value) in zip(one.top, other.top, strict=True):
            assert abs(value - other_value) < 1e-3
