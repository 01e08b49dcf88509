"""Measures a server under many streams at once: SSE, WebSocket, or half of each.

    python -m scripts.bench_serving --scripted --streams 256 --protocol sse ws
    python -m scripts.bench_serving --shape qwen3-0.6b --tokenizer FOLDER --streams 256 64 1 \\
        --protocol sse ws -- --max-num-seqs 256
    python -m scripts.bench_serving --address 127.0.0.1:8000 --streams 64 --seconds 20

Without --address a server is started, once for all loads; what stands behind `--` are options of
its own. --shape serves random weights of a model's shape, with the tokenizer of a folder: answers
are then no texts, but the work is the model's.

A load is one burst: all streams ask in the same moment; with --requests or --seconds each asks
again as soon as its answer has ended. Clients are processes of their own and connect before they
are measured. Every answer is checked: its number of tokens, its end, and with --scripted its text.

Columns. tok/s: output tokens of all streams, from the first request sent to the last byte read.
ttft: from a request sent to its first text. token: time for each token after the first, of whole
answers. gap: between two reads that brought text. d/tok: deltas for each token; fewer than one
where deltas were merged, or where a token has no text. loop: processor time of the server's event
loop for each delta, in microseconds, and its share of a core, while all streams run; whole: the
same for the whole load, requests and all. lag: of the
event loop's timers, as /metrics has it. rss: how much the server's memory grew. Times in
milliseconds, p50 and p99.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from scripts.machine_facts import machine_facts
from scripts.serving_client import Kind, Load
from scripts.serving_load import Target, put_load

ROOT = Path(__file__).parents[1]
READY = re.compile(r"Lectern is ready: http://([\d.]+):(\d+)")
# `python -m server`, with some of its modules' constants changed first.
_MAIN = """
import importlib, sys
while sys.argv[1] != "--":
    name, _, value = sys.argv.pop(1).partition("=")
    module, _, constant = name.partition(":")
    module = importlib.import_module(module)
    setattr(module, constant, type(getattr(module, constant))(value))
del sys.argv[1]
from server.__main__ import main
sys.exit(main())
"""
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
)
_WARM_UP_TOKENS = 16


@contextmanager
def started_server(
    options: Sequence[str], folder: Path, constants: Sequence[str] = ()
) -> Iterator[Target]:
    """A server of its own that is ready inside the block, with its data and its log in `folder`;
    `constants` (`module:NAME=value`) are changed in it. Leaves with the log's end where it does
    not get ready."""
    command = [sys.executable, "-c", _MAIN, *constants, "--"]
    command += ["--port", "0", "--data-dir", str(folder)]
    log = folder / "log.txt"
    with log.open("w", encoding="utf-8") as written:
        process = subprocess.Popen(
            [*command, *options],
            cwd=ROOT,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
        )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := READY.search(line):
                yield Target(found[1], int(found[2]), process.pid)
                break
        else:
            told = log.read_text("utf-8")[-2000:]
            raise SystemExit(f"the server ended with {process.wait()}:\n{told}")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def shape_folder(shape: str, tokenizer: Path, folder: Path) -> Path:
    """A model folder of `shape` without weights, with the tokenizer's files of `tokenizer`."""
    from scripts.model_shapes import SHAPES, write_shape

    write_shape(SHAPES[shape], folder)
    for name in TOKENIZER_FILES:
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, folder / name)
    return folder


def kinds_of(protocol: str, num_streams: int) -> list[Kind]:
    """One for each stream; `half`: by turns."""
    if protocol == "half":
        return ["sse" if index % 2 == 0 else "ws" for index in range(num_streams)]
    return ["ws" if protocol == "ws" else "sse"] * num_streams


COLUMNS = (
    ("tok/s", "output_tok_s"), ("ttft", "ttft_p50"), ("p99", "ttft_p99"), ("token", "token_p50"),
    ("p99", "token_p99"), ("gap", "gap_p50"), ("p99", "gap_p99"), ("d/tok", "deltas_per_token"),
    ("loop us", "loop_us_per_delta"), ("user", "loop_user_us_per_delta"), ("busy", "loop_busy"),
    ("whole us", "whole_loop_us_per_delta"), ("busy", "whole_loop_busy"),
    ("lag p99", "lag_p99"), ("rss MiB", "rss_growth_mib"), ("client", "client_cpu"),
    ("prompt", "prompt_tokens"), ("cached", "cached_tokens"), ("faults", "faults"),
)  # fmt: skip


def row(name: str, figures: dict[str, Any]) -> str:
    cells = [f"{figures.get(key, '-'):>8}" for _, key in COLUMNS]
    return f"{name:22}" + " ".join(cells)


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    own, extra = given, []
    if "--" in given:
        own, extra = given[: given.index("--")], given[given.index("--") + 1 :]
    options = _parser().parse_args(own)
    with tempfile.TemporaryDirectory() as folder:
        if options.address:
            host, _, port = options.address.partition(":")
            found = _measure(Target(host, int(port), options.pid), options)
        else:
            data_dir = Path(folder) / "data"
            data_dir.mkdir()
            served = _server_options(options, Path(folder)) + extra
            with started_server(served, data_dir, options.set) as target:
                found = _measure(target, options)
    if options.json:
        told = {
            "machine": machine_facts(),
            "server_options": extra,
            "constants": options.set,
            "loads": found,
        }
        options.json.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    return 1 if any(figures["faults"] for figures in found) else 0


def _measure(target: Target, options: argparse.Namespace) -> list[dict[str, Any]]:
    load = Load(
        max_tokens=options.max_tokens,
        prompt_tokens=options.prompt_tokens,
        shared_tokens=options.shared_tokens,
        num_requests=options.requests,
        seconds=options.seconds,
        is_scripted=options.scripted,
        stalled=options.stalled,
    )
    time.sleep(options.settle)
    warm_up = replace(load, max_tokens=_WARM_UP_TOKENS, num_requests=1, seconds=None, stalled=0.0)
    print(" " * 22 + " ".join(f"{title:>8}" for title, _ in COLUMNS), flush=True)
    found = []
    rounds = count()
    for protocol in options.protocol:
        for num_streams in options.streams:
            kinds = kinds_of(protocol, num_streams)
            if options.warm_up:
                warm = replace(warm_up, round=next(rounds))
                put_load(target, warm, kinds, num_processes=options.clients)
            for turn in range(options.repeat):
                other = replace(load, round=next(rounds))
                outcome = put_load(target, other, kinds, num_processes=options.clients)
                figures = {"protocol": protocol, "streams": num_streams, **outcome.figures()}
                found.append(figures)
                print(row(f"{protocol} {num_streams} #{turn}", figures), flush=True)
                if figures["fault"]:
                    print(f"  fault: {figures['fault']}", flush=True)
                if figures["stalled"]:
                    dropped = f"{figures['stalled_dropped']} of {figures['stalled']}"
                    print(f"  dropped of those that did not read: {dropped}", flush=True)
    return found


def _server_options(options: argparse.Namespace, folder: Path) -> list[str]:
    if options.scripted:
        # Room for all at once, as a GPU has it.
        seats, room = max(options.streams), 4 * (options.prompt_tokens + 4 * options.max_tokens)
        return [
            "--scripted",
            f"--scripted-token-s={options.token_s}",
            f"--max-num-seqs={seats}",
            "--max-num-batched-tokens=8192",
            f"--kv-cache-tokens={seats * room}",
        ]
    if options.shape is None:
        return []
    if options.tokenizer is None:
        raise SystemExit("--shape needs --tokenizer, a folder with a tokenizer.json.")
    model = folder / options.shape
    model.mkdir()
    shape_folder(options.shape, options.tokenizer, model)
    return ["--model", str(model), "--load-format", "dummy"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog="Options behind -- are the server's.",
    )
    add = parser.add_argument
    add("--address", metavar="HOST:PORT", help="a server that runs already")
    add("--pid", type=int, help="its process, to see what it takes")
    add("--scripted", action="store_true", help="serve a script; or --address serves one")
    add("--token-s", type=float, default=0.0, help="seconds that a scripted step takes")
    add("--shape", help="serve random weights of this shape (scripts.model_shapes)")
    add("--tokenizer", type=Path, help="folder with the tokenizer for --shape")
    add(
        "--set",
        action="append",
        default=[],
        metavar="MODULE:NAME=VALUE",
        help="change a constant of the server, such as server.__main__:_SWITCH_INTERVAL_S=0.001",
    )
    add("--protocol", nargs="+", choices=["sse", "ws", "half"], default=["sse"])
    add("--streams", nargs="+", type=int, default=[256], help="how many at once")
    add("--max-tokens", type=int, default=128, help="of each answer; EOS is ignored")
    add(
        "--settle",
        type=float,
        default=0.0,
        metavar="S",
        help="idle seconds first: a server on a GPU captures most of its graphs when it is idle",
    )
    add("--prompt-tokens", type=int, default=560, help="of each prompt, about")
    add("--shared-tokens", type=int, default=0, help="of these, how many all have in common")
    add("--requests", type=int, default=1, help="for each stream, one behind another")
    add("--seconds", type=float, help="in place of --requests: new ones begin for so long")
    add("--stalled", type=float, default=0.0, help="part of the streams that stops reading")
    add("--clients", type=int, default=max(1, min(8, (os.cpu_count() or 2) // 2)))
    add("--repeat", type=int, default=1, help="each load so often")
    add("--no-warm-up", dest="warm_up", action="store_false")
    add("--json", type=Path, help="also write all figures here")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
