"""The log of a run: any reader, from any point, at any moment, gets the same text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.service.events import Event
from server.service.run_log import RunLog
from tests.server.service.socket_events import FINISH

PROGRESS = {"prefilled": 1, "total": 2}

Step = str | int | bytes | None
steps = st.lists(
    st.one_of(
        st.text(min_size=1, max_size=5), st.just(None), st.just(7), st.sampled_from([b"hm", b"so"])
    ),
    max_size=60,
)
"""A text is a delta, bytes are thinking, None a progress event, a number a citation."""


class Client:
    """What a client does with the events: replaces at a snapshot, appends at a delta."""

    def __init__(self) -> None:
        self.text = ""
        self.thinking = ""
        self.seq = 0
        self.kept: list[int] = []

    def take(self, events: list[Event]) -> None:
        for event in events:
            message = json.loads(event.data)
            assert message["seq"] == event.seq
            assert event.seq > self.seq
            if message["type"] == "snapshot":
                assert message["through_seq"] == event.seq
                self.text = message["text"]
                self.thinking = message.get("thinking", "")
                self.seq = event.seq
                continue
            if message["type"] in ("delta", "thinking"):
                assert event.seq == self.seq + 1, "a delta never follows a gap"
            if message["type"] == "delta":
                self.text += message["text"]
            if message["type"] == "thinking":
                self.thinking += message["text"]
            if message["type"] == "citation":
                self.kept.append(event.seq)
            self.seq = event.seq


def _play(log: RunLog, script: list[Step]) -> None:
    for step in script:
        match step:
            case str():
                log.append_delta(step)
            case bytes():
                log.append("thinking", {"text": step.decode()})
            case None:
                log.append("progress", PROGRESS)
            case _:
                log.append("citation", {"n": step, "passage": "p"})


@given(steps, st.integers(2, 12), st.data())
def test_any_attach_point_gives_the_same_text(
    script: list[Step], max_events: int, data: st.DataObject
) -> None:
    log = RunLog("run_1", max_events)
    reads = data.draw(st.sets(st.integers(0, len(script))))
    client = Client()
    for place, step in enumerate(script):
        if place in reads:
            client.take(log.read(client.seq))
        _play(log, [step])
    log.append("finish", FINISH)
    client.take(log.read(client.seq))
    assert client.thinking == log.thinking
    assert log.thinking == "".join(step.decode() for step in script if isinstance(step, bytes))
    text = "".join(step for step in script if isinstance(step, str))
    cited = [place + 1 for place, step in enumerate(script) if step == 7]
    assert client.text == log.text == text
    assert client.seq == log.last_seq == len(script) + 1
    assert client.kept == cited, "what a snapshot does not hold is never dropped"

    _check_fresh(log, (text, client.seq, cited))
    place = data.draw(st.integers(0, log.last_seq))
    late = Client()
    late.take(log.read(0)[:place])
    log.fold_all()
    _check_fresh(log, (text, client.seq, cited))
    late.take(log.read(late.seq))
    assert (late.text, late.seq, late.kept) == (text, client.seq, cited)
    assert len(log.read(0)) <= len(cited) + 2


def _check_fresh(log: RunLog, expected: tuple[str, int, list[int]]) -> None:
    fresh = Client()
    fresh.take(log.read(0))
    assert (fresh.text, fresh.seq, fresh.kept) == expected


@given(steps, st.integers(2, 400), st.integers(0, 8), st.data())
def test_a_reader_that_lags_gets_the_same_and_no_more_bytes(
    script: list[Step], max_events: int, times: int, data: st.DataObject
) -> None:
    """`condensed` in the place of `read`, at any moments, of logs of up to some 500 events."""
    script = script * times
    log = RunLog("run_1", max_events)
    client = Client()
    for step in script:
        _play(log, [step])
        if data.draw(st.integers(0, 99)) == 0:
            client.take(_condensed(log, client.seq))
    log.append("finish", FINISH)
    client.take(_condensed(log, client.seq))
    assert client.text == "".join(step for step in script if isinstance(step, str))
    assert client.thinking == "".join(step.decode() for step in script if isinstance(step, bytes))
    assert client.seq == log.last_seq
    assert client.kept == [place + 1 for place, step in enumerate(script) if step == 7]


def _condensed(log: RunLog, after_seq: int) -> list[Event]:
    found, whole = log.condensed(after_seq), log.read(after_seq)
    assert sum(len(event.data) for event in found) <= sum(len(event.data) for event in whole)
    return found


def test_a_snapshot_stands_for_many_short_deltas() -> None:
    log = RunLog("run_1", 1000)
    log.append("citation", {"n": 1, "passage": "p"})
    for _ in range(200):
        log.append_delta("word ")
    log.append("citation", {"n": 2, "passage": "p"})
    assert [event.type for event in log.condensed(0)] == ["citation", "snapshot", "citation"]
    assert [event.seq for event in log.condensed(0)] == [1, 201, 202]
    few = log.condensed(190)
    assert [event.seq for event in few] == list(range(191, 203)), "a few are told one by one"


@given(steps, st.integers(2, 12))
def test_memory_is_bounded(script: list[Step], max_events: int) -> None:
    log = RunLog("run_1", max_events)
    _play(log, script)
    events = log.read(0)
    citations = sum(step == 7 for step in script)
    assert len(events) <= max_events + 1 + citations


def test_nothing_follows_the_end() -> None:
    log = RunLog("run_1", 10)
    log.append("finish", FINISH)
    with pytest.raises(RuntimeError, match="ended"):
        log.append("delta", {"text": "x"})
    assert log.last_seq == 1


def test_events_of_the_protocol_only() -> None:
    log = RunLog("run_1", 10)
    with pytest.raises(ValueError, match="dance"):
        log.append("dance", {})
    with pytest.raises(ValueError, match="position"):
        log.append("queued", {})
    assert log.last_seq == 0
