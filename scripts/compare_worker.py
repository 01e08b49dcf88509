"""A child process that measures on demand: one JSON line in, one JSON line out."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scripts.bench_work import Work

ROOT = Path(__file__).resolve().parents[1]
END_TIMEOUT_S = 30.0
MAX_LINE_BYTES = 1 << 20


class ChildError(Exception):
    """A child process failed, ended or took too long; the message says which and how."""


@asynccontextmanager
async def child(
    command: Sequence[str], **options: Any
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs `command` inside the block, from the repository's folder; ends it on the way out."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, limit=MAX_LINE_BYTES, **options
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), END_TIMEOUT_S)
            except TimeoutError:
                process.kill()
                await process.wait()


async def output_of(
    command: Sequence[str], timeout_s: float, log: Path, *, with_errors: bool = False
) -> str:
    """What `command` prints. Its standard error is appended to `log`, or is part of the output.
    Raises ChildError."""
    pipe = asyncio.subprocess.PIPE
    with log.open("ab") as file:
        errors = asyncio.subprocess.STDOUT if with_errors else file
        async with child(command, stdout=pipe, stderr=errors) as process:
            try:
                out, _ = await asyncio.wait_for(process.communicate(), timeout_s)
            except TimeoutError:
                raise ChildError(f"{Path(command[0]).name} took over {timeout_s:g} s") from None
    if process.returncode != 0:
        raise ChildError(f"{Path(command[0]).name} ended with {process.returncode}, see {log}")
    return out.decode("utf-8", "replace")


class Worker:
    """The parent's side of a child that runs `serve`. One question at a time."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, timeout_s: float) -> None:
        self.facts: dict[str, Any] = {}
        self._name = name
        self._process = process
        self._timeout_s = timeout_s

    async def ready(self) -> None:
        """Waits until the child has loaded its model; `facts` is then what it says of itself."""
        self.facts = await self._read()

    async def measure(self, work: Work, seed: int) -> dict[str, float]:
        """The figures of one run of `work`. Raises ChildError."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({**asdict(work), "seed": seed}).encode() + b"\n")
        await self._process.stdin.drain()
        return await self._read()

    async def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), self._timeout_s)
        except TimeoutError:
            raise ChildError(f"{self._name} took over {self._timeout_s:g} s") from None
        if not line:
            raise ChildError(f"{self._name} ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ChildError(f"{self._name}: {answer['error']}")
        return answer


@asynccontextmanager
async def worker(
    name: str, arguments: Sequence[str], timeout_s: float, log: Path
) -> AsyncIterator[Worker]:
    """A worker that is ready: `python -m ARGUMENTS`, its standard error appended to `log`."""
    pipe = asyncio.subprocess.PIPE
    with log.open("ab") as errors:
        command = [sys.executable, "-m", *arguments]
        async with child(command, stdin=pipe, stdout=pipe, stderr=errors) as process:
            started = Worker(name, process, timeout_s)
            await started.ready()
            yield started


def serve(facts: dict[str, Any], measure: Callable[[Work, int], dict[str, float]]) -> None:
    """The child's side: says `facts`, then answers until its input ends; each work is done once
    for practice before it counts, a long offline batch in small. Whatever else prints goes to
    standard error."""
    practised: set[str] = set()

    def answer(work: Work, seed: int) -> dict[str, Any]:
        try:
            if work.name not in practised:
                measure(work.shortened() if work.kind == "offline" else work, seed + 1)
                practised.add(work.name)
            return measure(work, seed)
        except (RuntimeError, ValueError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        print(json.dumps(facts), file=answers, flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            seed = asked.pop("seed")
            print(json.dumps(answer(Work(**asked), seed)), file=answers, flush=True)
