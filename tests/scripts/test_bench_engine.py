from __future__ import annotations

from pathlib import Path

import pytest

from engine.api import EngineConfig, Script, create_scripted_engine
from scripts.bench_engine import DecodeWindow, Delivery, EngineBench, decode_window
from scripts.bench_work import Work


def test_the_window_opens_when_the_last_sequence_begins_and_leaves_out_the_last_step() -> None:
    deliveries = [
        Delivery(0, 4, 10.0, 1),  # alone
        Delivery(0, 5, 11.0, 1),
        Delivery(1, 5, 11.0, 1),  # the second begins: this step opens the window
        Delivery(0, 6, 12.0, 3),  # drafts were right
        Delivery(1, 6, 12.0, 1),
        Delivery(1, 7, 13.5, 1),
        Delivery(0, 7, 13.5, 1),
        Delivery(1, 8, 15.0, 1),  # the other reader was not heard of any more
    ]
    assert decode_window(deliveries, 2) == DecodeWindow(6, 2, 2.5)


def test_a_sequence_that_never_began_is_an_error() -> None:
    deliveries = [Delivery(0, step, float(step), 1) for step in range(9)]
    with pytest.raises(ValueError, match="1 of 2"):
        decode_window(deliveries, 2)


def test_two_steps_are_too_few() -> None:
    with pytest.raises(ValueError, match="too few"):
        decode_window([Delivery(0, 1, 1.0, 1), Delivery(0, 2, 2.0, 1)], 1)


@pytest.mark.anyio
@pytest.mark.one_loop
@pytest.mark.parametrize(
    ("work", "limit"),
    [
        (Work("prefill", "prefill", 1, 100, 0), 100 / 0.02),
        (Work("decode", "decode", 3, 40, 12), 3 / 0.005),
    ],
    ids=["prefill", "decode"],
)
async def test_an_engine_of_known_speed_is_measured_right(work: Work, limit: float) -> None:
    """No step is faster than the script says; a busy machine may make it slower."""
    script = Script(answer=lambda _: "word" * 200, token_s=0.005, prefill_s=0.02)
    engine = create_scripted_engine(EngineConfig(model=Path("none")), script)
    await engine.start()
    try:
        figures = await EngineBench(engine).measure(work, seed=1)
    finally:
        await engine.shutdown(0)
    assert limit / 20 < figures["tokens_per_s"] <= limit * 1.01
