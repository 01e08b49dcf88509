from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.api import EngineConfig, Script, create_scripted_engine
from engine.assembly import assemble_scripted
from scripts.engine_drive import AsyncDrive, CoreDrive, Drive, DriveError, TokenClock
from scripts.gpu_work import GpuWork

TOKEN_S = 0.002
SCRIPT = Script(answer=lambda _: "word" * 400, token_s=TOKEN_S)
WORK = GpuWork("w", "", "decode", 3, 20, 40)


@contextmanager
def drive(through: str, max_model_len: int = 1000) -> Iterator[Drive]:
    config = EngineConfig(Path("none"), max_model_len=max_model_len, block_size=4)
    if through == "core":
        yield CoreDrive(assemble_scripted(config, SCRIPT).core)
        return
    engine = create_scripted_engine(config, SCRIPT)
    with asyncio.Runner() as runner:
        runner.run(engine.start())
        yield AsyncDrive(engine, runner)
        runner.run(engine.shutdown(0))


def test_the_clock_runs_from_the_last_beginning_to_the_first_end() -> None:
    clock = TokenClock(2)
    clock.note(1.0, [(0, 1, False)])
    clock.note(2.0, [(0, 1, False), (1, 0, False)])  # a part of the second prompt
    clock.note(3.0, [(0, 1, False), (1, 1, False)])  # starts here
    clock.note(3.5, [(0, 1, False), (1, 1, False)])
    clock.note(4.5, [(1, 3, False), (0, 1, True)])  # and ends here
    clock.note(9.0, [(1, 1, True)])
    assert clock.decode_step_s() == pytest.approx(1.5 / 3)  # 6 tokens of 2 sequences


def test_there_may_be_no_time_in_which_all_decode() -> None:
    clock = TokenClock(2)
    assert clock.decode_step_s() is None
    clock.note(1.0, [(0, 1, True)])
    clock.note(2.0, [(1, 1, False)])
    clock.note(3.0, [(1, 1, False)])
    assert clock.decode_step_s() is None, "the first had ended when the second began"
    clock = TokenClock(1)
    clock.note(1.0, [(0, 1, True)])
    assert clock.decode_step_s() is None


@pytest.mark.parametrize("through", ["core", "async"])
def test_an_engine_of_known_speed(through: str) -> None:
    with drive(through) as driven:
        run = driven.run(WORK.requests(1, 200))
        assert (run.output_tokens, run.prompt_tokens, run.cached_tokens) == (120, 60, 0)
        assert run.num_steps >= 40
        assert run.num_preemptions == 0
        assert run.seconds >= 40 * TOKEN_S
        assert run.decode_step_s is not None
        assert run.decode_step_s >= 0.9 * TOKEN_S  # readers hear of two steps at once, perhaps
        again = driven.run([*WORK.requests(2, 200)[:1], *WORK.requests(1, 200)[1:]])
        assert again.cached_tokens == 2 * 16, "prompts but their last block"


@pytest.mark.parametrize("through", ["core", "async"])
def test_an_answer_that_ends_early_is_an_error(through: str) -> None:
    with (
        drive(through, max_model_len=50) as driven,
        pytest.raises(DriveError, match=r"w-1-\d ended as context_window with 30 of 40 tokens"),
    ):
        driven.run(WORK.requests(1, 200))
