"""Prints what the scheduler and the prefix cache do on simulated loads, beside the alternatives.

    .venv/bin/python scripts/simulate_scheduling.py

The real scheduler on a machine whose steps cost what a formula says (tests/support/simulation.py):
30 ms and 1 ms a row for a decode step, prompts at 2,400 tokens a second, unless said otherwise.
Takes half a minute; the numbers are the same on every machine."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from engine.kv.block_pool import PROTECTED_SHARE  # noqa: E402
from engine.scheduling import admission, queues  # noqa: E402
from engine.scheduling.scheduler import SchedulerLimits  # noqa: E402
from tests.support.class_workload import ClassWorkload, hit_rate  # noqa: E402
from tests.support.simulation import (  # noqa: E402
    TWO_CORES,
    Device,
    Job,
    Simulation,
    chat_load,
    mixed_answers,
    overload,
    tokens,
    with_users,
)


def chat() -> None:
    print("32 chat requests, 16 at a time: 345-723 prompt tokens, 4 beginnings of 300, 128 out")
    for target_s in (0.1, 0.25, 0.5):
        limits = SchedulerLimits(step_time_target_s=target_s)
        played = Simulation(limits=limits).play(chat_load(), concurrency=16)
        print(
            f"  step target {target_s:4} s: {played.output_per_s:5.0f} tok/s, TTFT p50 "
            f"{played.ttft_s():.2f} s, p90 {played.ttft_s(0.9):.2f} s, ITL p50 "
            f"{1000 * played.itl_s():.0f} ms, p99 {1000 * played.itl_s(0.99):.0f} ms"
        )
    slow = Device(base_s=0.01, decode_base_s=0.03, per_decode_s=0.008, per_prefill_s=1 / 600)
    played = Simulation(device=slow).play(chat_load(16, 64), concurrency=8)
    print(
        f"  16, 8 at a time, 64 out, at 600 tok/s and 40 + 8 ms a row: {played.output_per_s:.0f} "
        f"tok/s, TTFT p50 {played.ttft_s():.2f} s, p90 {played.ttft_s(0.9):.2f} s"
    )


def fair_shares() -> None:
    print("50 requests of one user and one of another, 16 slots: the one's TTFT")
    heavy = [Job(f"heavy{i}", tokens(700 + i, 400), 100) for i in range(50)]
    for at_s in (0.0, 5.0):
        light = [Job("light", tokens(900, 600), 100, at_s=at_s)]
        times = [
            Simulation(limits=SchedulerLimits(max_num_seqs=16)).play(jobs).ttft_s(0.5, "light")
            for jobs in (with_users(heavy, "h") + light, heavy + light)
        ]
        print(f"  sent after {at_s:.0f} s: {times[0]:.1f} s; as the same user: {times[1]:.1f} s")


def long_answers() -> None:
    print("one user has 20 requests of 1,500 tokens out, another one sends a short one every 10 s")
    jobs = with_users([Job(f"heavy{i}", tokens(100 + i, 200), 1500) for i in range(20)], "h")
    jobs += with_users(
        [Job(f"light{i}", tokens(200 + i, 300), 60, at_s=10.0 * (1 + i)) for i in range(4)], "l"
    )
    kept = admission.STARVED_AFTER_S
    for num_seqs, num_blocks in ((16, 4096), (64, 800)):
        limits = SchedulerLimits(max_num_seqs=num_seqs)
        line = []
        for name, seconds in (("a place after 2 s", kept), ("none", 1e9)):
            admission.STARVED_AFTER_S = seconds
            played = Simulation(num_blocks=num_blocks, limits=limits).play(jobs)
            worst = played.ttft_s(0.99, "light")
            line.append(f"{name}: TTFT {worst:.1f} s, all in {played.seconds:.0f} s")
        print(f"  {num_seqs} slots, {num_blocks} blocks, {'; '.join(line)}")
    admission.STARVED_AFTER_S = kept


def ageing() -> None:
    print(
        "400 requests, a tenth of 2,000-4,000 tokens, a little more than the machine can do: TTFT"
    )
    kept = queues.AGEING_SHARE
    for name, share in (("shortest first", 0.0), ("ours", kept), ("by arrival", 1e9)):
        queues.AGEING_SHARE = share
        played = Simulation(num_blocks=16_384).play(overload())
        print(
            f"  {name:>14}: short p50 {played.ttft_s(0.5, 'short'):5.1f} s, p90 "
            f"{played.ttft_s(0.9, 'short'):5.1f} s; long p50 {played.ttft_s(0.5, 'long'):5.1f} s, "
            f"worst {played.ttft_s(0.9999, 'long'):5.1f} s"
        )
    queues.AGEING_SHARE = kept


def quarter_pool() -> None:
    print("16 slots in a pool of a quarter of their demand, at 9 + 3.4 ms a row: output kept")
    kept = admission.GROWTH_SHARE
    loads = {
        "100 in, 400 out": [Job(f"j{i}", tokens(500 + i, 100), 400) for i in range(48)],
        "534 in, 128 out": [Job(f"j{i}", tokens(500 + i, 534), 128) for i in range(48)],
        "300 in, 300 out": [Job(f"j{i}", tokens(500 + i, 300), 300) for i in range(48)],
        "mixed": mixed_answers(),
    }
    for name, jobs in loads.items():
        sizes = sorted(-(-(len(job.prompt) + job.num_output) // 16) for job in jobs)
        demand = sum(sizes[-16:])
        limits = SchedulerLimits(max_num_seqs=16)
        whole = Simulation(device=TWO_CORES, num_blocks=demand, limits=limits).play(jobs)
        line = []
        for share in (0.0, kept, 1.0):
            admission.GROWTH_SHARE = share
            small = Simulation(device=TWO_CORES, num_blocks=demand // 4, limits=limits).play(jobs)
            rate = small.output_per_s / whole.output_per_s
            line.append(f"{share}: {100 * rate:.0f} % ({small.num_preemptions} preempted)")
        admission.GROWTH_SHARE = kept
        print(f"  {name}, growth kept free by {', '.join(line)}")


def eviction() -> None:
    print("hit rate on a class of 60 students in 6 courses, a third of the prompts sent only once")
    for num_blocks in (150, 300, 600, 1200):
        rates = [hit_rate(ClassWorkload(), num_blocks, share) for share in (0.0, PROTECTED_SHARE)]
        print(f"  {num_blocks:5} blocks: LRU {rates[0]:.3f}, ours {rates[1]:.3f}")


def main() -> None:
    for part in (chat, fair_shares, long_answers, ageing, quarter_pool, eviction):
        part()


if __name__ == "__main__":
    main()
