from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from scripts.bench_work import WORKS
from scripts.compare_worker import ChildError, Worker, child, output_of

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

ECHO = """
from scripts.compare_worker import serve

calls = []

def measure(work, seed):
    print("this does not belong to the answers")
    calls.append(work.name)
    if work.kind == "prefill":
        raise ValueError("no prefill here")
    return {"tokens_per_s": float(work.num_tokens + seed), "calls": len(calls)}

serve({"dtype": "none"}, measure)
"""


async def test_a_worker_answers_until_its_input_ends() -> None:
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-c", ECHO]
    async with child(
        command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    ) as process:
        worker = Worker("echo", process, 60)
        await worker.ready()
        assert worker.facts == {"dtype": "none"}
        work = WORKS["decode-empty"]
        rate = float(work.num_tokens)
        # The first call of a work is for practice.
        assert await worker.measure(work, 3) == {"tokens_per_s": rate + 3.0, "calls": 2}
        with pytest.raises(ChildError, match="no prefill here"):
            await worker.measure(WORKS["prefill"], 3)
        assert await worker.measure(work, 0) == {"tokens_per_s": rate, "calls": 4}
        assert process.stdin is not None
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_a_child_is_ended_with_its_block() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    async with child(command) as process:
        assert process.returncode is None
    assert process.returncode is not None


async def test_output_and_errors_go_apart_unless_both_are_wanted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr)"]
    assert await output_of(command, 60, log) == "out\n"
    assert log.read_text() == "err\n"
    assert sorted((await output_of(command, 60, log, with_errors=True)).split()) == ["err", "out"]


async def test_a_failure_and_a_time_out_say_which_program(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(ChildError, match=r"python.* ended with 3"):
        await output_of([sys.executable, "-c", "raise SystemExit(3)"], 60, log)
    with pytest.raises(ChildError, match=r"python.* took over 0.2 s"):
        await output_of([sys.executable, "-c", "import time; time.sleep(600)"], 0.2, log)
