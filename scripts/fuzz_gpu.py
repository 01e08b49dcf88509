"""Fuzzes the engine with a real, tiny model on a GPU: random requests, cancels, deadlines, stops.

    .venv/bin/python scripts/fuzz_gpu.py [--events 10000] [--seed N] [--model qwen3]
        [--cuda-graphs off] [--compare 200]

The same trial as tests/gpu/test_fuzz.py. Ends with what happened, and with an error if anything
was left behind or an answer is not the one that its request gets alone."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="qwen3", help="of tests/support/tiny_models.py")
    parser.add_argument("--cuda-graphs", choices=("auto", "off"), default="auto")
    parser.add_argument("--compare", type=int, default=200, help="answers to compare")
    args = parser.parse_args()

    import torch

    if not torch.cuda.is_available():
        print("There is no CUDA device.", file=sys.stderr)
        return 2

    from tests.support.engine_fuzz import EngineFuzz
    from tests.support.tiny_models import build_tiny_model

    with tempfile.TemporaryDirectory() as folder:
        fuzz = EngineFuzz(
            build_tiny_model(Path(folder), args.model), args.seed, cuda_graphs=args.cuda_graphs
        )
        started_s = time.monotonic()
        fuzz.play(args.events)
        played_s = time.monotonic() - started_s
        fuzz.compare(args.compare)
    print(f"{args.events} events, seed {args.seed}: {played_s:.1f} s")
    for name, count in sorted(fuzz.report().items()):
        print(f"{name:>28} {count:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
