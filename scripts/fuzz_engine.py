"""Fuzzes the engine's bookkeeping: random engines, requests, aborts and failures.

    .venv/bin/python scripts/fuzz_engine.py [--minutes 10] [--seed N] [--examples N] [--depth N]

The same trial as tests/properties, its invariants checked after every call, with many more
examples, longer histories and larger engines. Ends with a summary, and with status 1 if an
example failed; `--seed S --examples 1` plays example S again."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.engine_trial import PREFIXES, EngineTrial, TrialConfig  # noqa: E402


def random_config(random: Random, depth: int) -> TrialConfig:
    """A small engine that runs short of blocks, slots or tokens."""
    max_num_seqs = random.choice((1, 2, 4, 8, 16))
    return TrialConfig(
        num_blocks=random.choice((3, 6, 12, 24, 64)),
        block_size=random.choice((1, 2, 4, 8)),
        max_model_len=random.choice((24, 50, 120)),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_seqs + random.choice((1, 4, 16, 64)),
        min_chunk_tokens=random.choice((1, 4, 32)),
        enable_prefix_cache=random.random() < 0.7,
        draft_share=random.choice((0.0, 0.3, 0.8, 1.0)),
        draft_max_batch=random.choice((1, 3, 1 << 30)),
        step_s=random.choice((0.001, 0.5)),
        depth=depth,
        seed=random.randrange(1 << 30),
    )


def play(trial: EngineTrial, random: Random) -> None:
    """One history, from the first request to the last answer."""
    for _ in range(random.randrange(10, 120)):
        names = list(trial.requests)
        choice = random.random()
        if choice < 0.35 or not names:
            trial.submit(
                random.randrange(len(PREFIXES)),
                random.randrange(1, 40),
                max_tokens=random.choice((None, 1, 5, 20, 60)),
                num_choices=random.choice((1, 1, 1, 2, 5)),
                priority=random.choice((0, 0, 1)),
                timeout_steps=random.choice((None, None, None, random.random() * 100)),
                user=random.choice(("", "a", "b", "c")),
                salt=random.choice(("", "", "s")),
                stop=random.choice(((), (), ("ab",), ("e", "qz"))),
                leader=random.choice(names) if names and random.random() < 0.05 else None,
            )
        elif choice < 0.9:
            trial.step(random.randrange(1, 12))
        elif choice < 0.97:
            trial.abort(random.choice(names))
        else:
            trial.fail(random.choice(names))
        trial.check()
    if random.random() < 0.1:
        trial.shut_down()
    else:
        trial.drain()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0, help="the first example's seed")
    parser.add_argument("--examples", type=int, default=None, help="stop after so many")
    parser.add_argument(
        "--depth", type=int, choices=(1, 2, 3), help="steps in flight; else in turns"
    )
    args = parser.parse_args()
    started_s = time.monotonic()
    totals: Counter[str] = Counter()
    failed: list[int] = []
    seed = args.seed
    while time.monotonic() - started_s < args.minutes * 60:
        if args.examples is not None and totals["examples"] >= args.examples:
            break
        random = Random(seed)
        trial = EngineTrial(random_config(random, args.depth or 1 + seed % 2))
        try:
            play(trial, random)
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
            traceback.print_exc()
            print(f"example {seed} failed: {trial.config}")
            failed.append(seed)
        stats = trial.core.stats()
        totals.update(
            examples=1,
            requests=len(trial.requests),
            steps=trial.num_steps,
            preemptions=stats.num_preemptions,
            forks=stats.num_forks,
            copies=trial.runner.num_copies,
            pending=trial.runner.num_pending,
            dropped=trial.runner.num_sampled - stats.generated_tokens,
            aborts=stats.num_aborted,
            cached_tokens=stats.cached_tokens,
            generated_tokens=stats.generated_tokens,
            drafted=trial.drafter.num_drafted if trial.drafter else 0,
            accepted=trial.drafter.num_accepted if trial.drafter else 0,
        )
        seed += 1
    print(f"seeds {args.seed}…{seed - 1}, {time.monotonic() - started_s:.0f} s")
    for name, count in totals.items():
        print(f"{name:>17} {count:,}")
    print(f"{'failures':>17} {len(failed)} {failed or ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
