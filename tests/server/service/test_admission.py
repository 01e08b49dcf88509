"""What the server says before and after the time in which it answers; and its metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.api import (
    EngineConfig,
    Finish,
    FinishDetail,
    FinishType,
    GenerationRequest,
    RequestId,
    SamplingParams,
    Script,
    Timing,
    Usage,
    create_scripted_engine,
)
from server.service.admission import Admission
from server.service.errors import ModelUnavailableError, QueueFullError, ShuttingDownError
from server.service.metrics import Metrics

pytestmark = pytest.mark.anyio


def _endless(name: str) -> GenerationRequest:
    return GenerationRequest(RequestId(name), (1, 2, 3), SamplingParams(ignore_eos=True))


async def test_states() -> None:
    engine = create_scripted_engine(EngineConfig(Path("scripted")))
    admission = Admission(engine)
    assert admission.state == "starting"
    with pytest.raises(ModelUnavailableError) as loading:
        admission.check()
    assert loading.value.retry_after_ms
    await engine.start()
    admission.check()
    assert admission.is_ready
    admission.drain()
    assert (admission.state, admission.is_ready) == ("draining", False)
    with pytest.raises(ShuttingDownError):
        admission.check()
    admission.check_engine()
    await engine.shutdown(0)
    with pytest.raises(ShuttingDownError):
        admission.check_engine()
    assert admission.state == "stopped"


async def test_a_new_answer_needs_room_in_the_engine() -> None:
    """Counted on the loop: requests that no step has seen yet take room already."""
    engine = create_scripted_engine(
        EngineConfig(Path("scripted"), max_num_seqs=1, max_queued_requests=1), Script(token_s=0.01)
    )
    admission = Admission(engine)
    with pytest.raises(ModelUnavailableError):
        admission.check_run()
    await engine.start()
    async with engine.generate(_endless("a")):
        admission.check_run()
        async with engine.generate(_endless("b")) as second:
            with pytest.raises(QueueFullError) as full:
                admission.check_run()
            assert full.value.retryable
            assert full.value.retry_after_ms
            admission.check()
            engine.abort(second.request_id)
            async for _ in second:
                pass
            admission.check_run()
    await engine.shutdown(0)


async def test_metrics() -> None:
    metrics = Metrics(create_scripted_engine(EngineConfig(Path("scripted"))))
    end = FinishDetail(FinishType.EOS)
    metrics.finished(Finish(end, Usage(10, 4, 6), Timing(0.1, 0.2, 1.0)))
    metrics.left(FinishType.SLOW_CLIENT)
    lines = metrics.render().decode().splitlines()
    for line in (
        'lectern_generations_finished_total{detail="eos"} 1.0',
        'lectern_generations_finished_total{detail="slow_client"} 1.0',
        "lectern_prompt_tokens_total 10.0",
        "lectern_prompt_cached_tokens_total 6.0",
        "lectern_completion_tokens_total 4.0",
        'lectern_time_to_first_token_seconds_bucket{le="0.25"} 1.0',
        "lectern_running_sequences 0.0",
    ):
        assert line in lines
