"""`Relay`: what an engine's stream brings becomes a run's events, in the fan-out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import (
    Finish,
    FinishDetail,
    FinishType,
    OutputStream,
    Progress,
    RequestId,
    RequestOutput,
)
from server.service.answer_pieces import Piece
from server.service.auth import UserId
from server.service.fan_out import FanOut
from server.service.queue_estimate import QueuePlace
from server.service.relay import Relay
from server.service.run import Run
from tests.server.service.harness import Json

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

ID = RequestId("r")
EOS = Finish(FinishDetail(FinishType.EOS))
START = {
    "model": "m",
    "prompt_tokens": 5,
    "max_tokens": 9,
    "max_tokens_lowered": False,
    "continued": False,
}


class Upper:
    """A reader for which capitals are thinking."""

    reasoning_tokens = 3
    num_told = 0

    def push(self, output: RequestOutput) -> Piece:
        self.num_told += len(output.text)
        thought = "".join(char for char in output.text if char.isupper())
        return Piece("".join(char for char in output.text if not char.isupper()), thought)

    def finish_detail(self, finish: Finish) -> dict[str, Any]:
        return {**finish.detail.to_json(), "in": "reasoning"}


def made(run: Run, **options: Any) -> Relay:
    options = {"heartbeat_s": 10, **options}
    return Relay(run, dict(START), FanOut(), options.pop("place", lambda: None), **options)


def a_run() -> Run:
    return Run("run_1", UserId("me-me-me"), None, 4096)


def told(run: Run) -> list[Json]:
    return [json.loads(event.data) for event in run.read(0)]


def outputs(texts: Sequence[str]) -> list[RequestOutput]:
    first = RequestOutput(ID, progress=Progress(2, 5, 1))
    pieces = [RequestOutput(ID, text, (number,)) for number, text in enumerate(texts)]
    return [first, *pieces, RequestOutput(ID, finish=EOS)]


@given(
    st.lists(st.text(max_size=3), max_size=30),
    st.integers(0, 32),
    st.lists(st.booleans(), min_size=32, max_size=32),
)
async def test_nothing_is_lost_however_the_loop_turns(
    texts: list[str], early: int, turns: list[bool]
) -> None:
    run, stream = a_run(), OutputStream(ID)
    taken: list[tuple[str, tuple[int, ...]]] = []
    relay = made(run, on_output=lambda text, ids, *_: taken.append((text, ids)))
    brought = outputs(texts)
    for output in brought[:early]:
        stream.put(output)
    reading = asyncio.create_task(relay.read(stream))
    for output, turn in zip(brought[early:], turns, strict=False):
        if turn:
            await asyncio.sleep(0)
        stream.put(output)
    async with asyncio.timeout(5):
        assert await reading == EOS
    events = told(run)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["type"] for event in events[:1]] == ["start"]
    assert events[0]["cached_tokens"] == 1
    deltas = [event["text"] for event in events if event["type"] == "delta"]
    assert all(deltas)
    assert "".join(deltas) == relay.text == run.text == "".join(texts)
    assert "".join(text for text, _ in taken) == "".join(texts)
    assert [id for _, ids in taken for id in ids] == relay.token_ids == list(range(len(texts)))


async def test_thinking_is_told_apart() -> None:
    run, stream = a_run(), OutputStream(ID)
    heard: list[tuple[str, str, int]] = []
    relay = made(
        run,
        reader=Upper(),
        on_output=lambda text, _, thinking, num_told: heard.append((text, thinking, num_told)),
    )
    assert relay.thinking_s is None
    for output in outputs(["HM", "WEll", "done"]):
        stream.put(output)
    assert await relay.read(stream) == EOS
    assert [(e["type"], e["text"]) for e in told(run) if "text" in e] == [
        ("thinking", "HMWE"),
        ("delta", "lldone"),
    ]
    assert relay.text == run.text == "lldone"
    assert heard == [("lldone", "HMWE", 10)]
    assert relay.thinking_s is not None
    assert relay.reasoning_tokens == 3
    assert relay.finish_detail(EOS) == {"type": "eos", "in": "reasoning"}


async def test_what_fails_in_the_fan_out_is_raised_where_the_answer_is_read() -> None:
    run, stream = a_run(), OutputStream(ID)

    def refuse(text: str, *_: object) -> None:
        raise KeyError(text)

    reading = asyncio.create_task(made(run, on_output=refuse).read(stream))
    await asyncio.sleep(0)
    stream.put(RequestOutput(ID, "a", (1,)))
    stream.put(RequestOutput(ID, "b", (2,)))
    with pytest.raises(KeyError):
        await reading
    stream.put(RequestOutput(ID, "c", (3,), finish=EOS))
    await asyncio.sleep(0)
    assert run.text == "ab", "nothing is told after a failure"


async def test_a_place_is_told_when_it_changes_and_again_when_nothing_else_is() -> None:
    run = a_run()
    place: QueuePlace | None = QueuePlace(3, None)
    relay = made(run, place=lambda: place, heartbeat_s=5)
    began_s = asyncio.get_running_loop().time()
    first, later = QueuePlace(2, 1500), QueuePlace(2, 1400)
    looks = (
        (0.1, place),
        (1, place),
        (2, place),
        (3, first),
        (4, later),
        (9, later),
        (10, None),
        (15, None),
    )
    for after_s, now in looks:
        place = now
        relay.tick(began_s + after_s)
    queued = [(e["position"], e.get("eta_ms")) for e in told(run) if e["type"] == "queued"]
    assert queued == [(3, None), (2, 1500), (2, 1400)]
    assert told(run)[-1] | {"seq": 0} == {
        "type": "progress",
        "run": "run_1",
        "seq": 0,
        "prefilled": 0,
        "total": 5,
    }
    run.emit("error", code="internal", message="", retryable=False)
    relay.tick(began_s + 99.0)
    assert told(run)[-1]["type"] == "error"


async def test_a_run_that_tells_something_has_no_heartbeat() -> None:
    run = a_run()
    relay = made(run, heartbeat_s=5)
    began_s = asyncio.get_running_loop().time()
    for after_s in range(0, 40, 4):
        run.emit_delta("a")
        relay.tick(began_s + after_s)
    assert {event["type"] for event in told(run)} == {"delta"}
    relay.tick(began_s + 36 + 5)
    assert told(run)[-1]["type"] == "progress"
