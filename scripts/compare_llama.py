"""llama.cpp as a contender: how its programs are started and read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from scripts.bench_work import Work, expected_quote, quote_prompt, quoted_share
from scripts.compare_llama_build import BATCHED_BENCH, BENCH, SERVER, LlamaSetting
from scripts.compare_served import server
from scripts.compare_worker import ChildError, output_of

SPECULATIONS = ("none", "ngram-simple", "ngram-map-k", "ngram-mod")
"""Of llama-server's kinds of speculation, those that need no second model."""


class Llama:
    """llama.cpp's programs in one folder."""

    def __init__(self, folder: Path, *, threads: int, timeout_s: float, log: Path) -> None:
        missing = [name for name in (BENCH, BATCHED_BENCH, SERVER) if not (folder / name).exists()]
        if missing:
            raise SystemExit(f"{folder} holds no {' and no '.join(missing)}.")
        self.folder = folder
        self._threads = str(threads)
        self._timeout_s = timeout_s
        self._log = log

    async def version(self) -> str:
        """What the programs say they were built from."""
        command = [str(self.folder / SERVER), "--version"]
        out = await output_of(command, self._timeout_s, self._log, with_errors=True)
        return read_version(out)

    async def measure(self, setting: LlamaSetting, work: Work, _seed: int) -> dict[str, float]:
        """`tokens_per_s` by llama.cpp's own benchmark programs, which take random tokens."""
        if work.num_sequences == 1:
            rate = read_bench(await self._run(bench_command(setting, work)))
        else:
            rate = read_batched_bench(await self._run(batched_command(setting, work)))
        return {"tokens_per_s": rate}

    async def measure_quote(
        self, setting: LlamaSetting, guesses: str, work: Work, _seed: int
    ) -> dict[str, float]:
        """`tokens_per_s` and `quoted` of the quoting answer, as llama-server times it, with one
        of `SPECULATIONS`. The prompt is read once before."""
        command = self.server_command(setting, num_slots=1, tokens_per_slot=2048)
        command += ["--spec-type", guesses]
        body = {
            "prompt": quote_prompt(),
            "n_predict": work.num_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        async with (
            server(command, "/health", self._timeout_s, self._log) as address,
            httpx.AsyncClient(base_url=address, timeout=self._timeout_s) as client,
        ):
            try:
                await client.post("/completion", json={**body, "n_predict": 1})
                reply = await client.post("/completion", json=body)
                answer = reply.raise_for_status().json()
            except httpx.HTTPError as error:
                raise ChildError(f"llama-server failed: {error!r}") from error
        return {
            "tokens_per_s": float(answer["timings"]["predicted_per_second"]),
            "quoted": quoted_share(answer["content"], expected_quote()),
        }

    def server_command(
        self, setting: LlamaSetting, *, num_slots: int, tokens_per_slot: int
    ) -> list[str]:
        """The command that starts llama-server on loopback, without its port."""
        return [
            str(self.folder / SERVER),
            *("-m", str(setting.model), "--host", "127.0.0.1"),
            *("-np", str(num_slots), "-c", str(num_slots * tokens_per_slot)),
            *("-t", self._threads, "-tb", self._threads, "-fa", setting.attention),
        ]

    async def _run(self, command: Sequence[str]) -> str:
        program, *arguments = command
        threads = ("-t", self._threads)
        return await output_of(
            [str(self.folder / program), *threads, *arguments], self._timeout_s, self._log
        )


def bench_command(setting: LlamaSetting, work: Work) -> list[str]:
    """llama-bench for one sequence. A context of one token is what it calls an empty one."""
    if work.kind == "prefill":
        num_prompt, num_generated, depth = work.context, 0, 0
    else:
        depth = work.context if work.context > 1 else 0
        num_prompt, num_generated = 0, work.num_tokens
    return [
        BENCH,
        *("-m", str(setting.model), "-p", str(num_prompt), "-n", str(num_generated)),
        *("-d", str(depth), "-fa", setting.attention, "-r", "1", "-o", "json"),
    ]


def batched_command(setting: LlamaSetting, work: Work) -> list[str]:
    """llama-batched-bench for several sequences, each with its own prompt."""
    num_tokens = work.num_sequences * (work.context + work.num_tokens)
    return [
        BATCHED_BENCH,
        *("-m", str(setting.model), "-c", str(num_tokens), "-npp", str(work.context)),
        *("-ntg", str(work.num_tokens), "-npl", str(work.num_sequences)),
        *("-fa", setting.attention, "--output-format", "jsonl"),
    ]


def read_bench(text: str) -> float:
    """Tokens per second, of llama-bench's JSON."""
    tests: list[dict[str, Any]] = json.loads(text)
    if len(tests) != 1:
        raise ChildError(f"llama-bench ran {len(tests)} tests, not one")
    return float(tests[0]["avg_ts"])


def read_batched_bench(text: str) -> float:
    """Generated tokens per second of all sequences, of llama-batched-bench's JSON lines."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if len(lines) != 1:
        raise ChildError(f"llama-batched-bench told {len(lines)} results, not one")
    return float(json.loads(lines[0])["speed_tg"])


def read_version(text: str) -> str:
    """`0.5.0-dev (build 1, commit 0c1e570)` of the line that begins with "version:"."""
    match = re.search(r"^version: (.+)$", text, re.MULTILINE)
    return match[1].strip() if match else "unknown"
