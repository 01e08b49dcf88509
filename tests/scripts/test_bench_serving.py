"""The clients see what a server sends, and the figures say what the clients saw."""

from __future__ import annotations

import json
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scripts.bench_serving import kinds_of, main, row, shape_folder
from scripts.process_watch import MemoryWatch, thread_times
from scripts.serving_client import STALLED_TOKENS, Answer, Load, Played
from scripts.serving_load import Outcome, lag_percentile, percentile
from scripts.serving_replies import PingFinder, SocketReply, SSEReply, masked, messages, pong

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}


def frame(delta: dict[str, str], finish: str | None = None, usage: Any = None) -> bytes:
    choice = {"delta": delta, "finish_reason": finish}
    chunk = {"choices": [choice], "usage": usage}
    return f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n".encode()


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


SSE = HEAD + chunked(
    b": waiting\n\n",
    frame({"role": "assistant", "content": ""}) + frame({"content": "a"}),
    frame({"content": "b"}) + frame({"content": ""}, "length"),
    b'data: {"choices":[],"usage":%b}\n\n' % json.dumps(USAGE).encode() + b"data: [DONE]\n\n",
)


def text_frame(event: dict[str, Any]) -> bytes:
    data = json.dumps(event, separators=(",", ":")).encode()
    size = len(data)
    return (bytes((0x81, size)) if size < 126 else b"\x81\x7e" + size.to_bytes(2, "big")) + data


EVENTS: list[dict[str, Any]] = [
    {"type": "accepted", "run": "r", "seq": 1},
    {"type": "delta", "text": "a", "seq": 2},
    {"type": "delta", "text": "b", "seq": 3},
    {"type": "finish", "usage": USAGE, "seq": 4},
]
SOCKET = (
    b"".join(map(text_frame, EVENTS[:2])) + b"\x89\x01x" + b"".join(map(text_frame, EVENTS[2:]))
)


@given(st.lists(st.integers(0, len(SSE)), max_size=6), st.booleans())
@example([SOCKET.rindex(b"}},") + 1], False)
def test_a_reply_is_read_however_it_is_cut(cuts: list[int], is_sse: bool) -> None:
    data, reply = (SSE, SSEReply()) if is_sse else (SOCKET, SocketReply())
    edges = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    pieces = [data[start:end] for start, end in pairwise(edges)]
    ended = [reply.feed(piece) for piece in pieces]
    assert ended == [False] * (len(pieces) - 1) + [True]
    assert reply.num_deltas == 2
    assert reply.read() == ("ab", USAGE)


@given(st.lists(st.integers(0, 40), max_size=6))
def test_pings_are_found_however_they_are_cut(cuts: list[int]) -> None:
    text = text_frame({"a": 1})
    data = text + b"\x89\x04abcd" + text + b"\x89\x04\x89\x04\x89\x04" + text
    edges = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    finder = PingFinder()
    found = [ping for start, end in pairwise(edges) for ping in finder.feed(data[start:end])]
    assert found == [b"abcd", b"\x89\x04\x89\x04"]
    assert pong(b"abcd") == b"\x8a\x84\0\0\0\0abcd"


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (SSE.replace(b"[DONE]", b"[DON.]"), "DONE"),
        (HEAD + chunked(frame({"content": "a"}), b"data: [DONE]\n\n"), "0 ends"),
        (HEAD + chunked(b'data: {"error":{"message":"It broke."}}\n\ndata: [DONE]\n\n'), "broke"),
        (b"HTTP/1.1 429 Too Many Requests\r\n\r\nfull", "429"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_stream_is_told(data: bytes, fault: str) -> None:
    reply = SSEReply()
    assert reply.feed(data)
    with pytest.raises(ValueError, match=fault):
        reply.read()


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([*EVENTS[:2], EVENTS[3]], "event 4 follows 2"),
        ([*EVENTS[:3], {"type": "error", "message": "It broke."}], "It broke"),
    ],
)
def test_what_is_wrong_with_a_run_is_told(events: list[dict[str, Any]], fault: str) -> None:
    reply = SocketReply()
    assert reply.feed(b"".join(map(text_frame, events)))
    with pytest.raises(ValueError, match=fault):
        reply.read()


@given(st.binary(max_size=300))
def test_a_masked_message_is_the_message(payload: bytes) -> None:
    sent = masked(payload)
    head = 2 if len(payload) < 126 else 4
    mask, data = sent[head : head + 4], sent[head + 4 :]
    assert sent[0] == 0x81
    assert sent[1] & 0x80
    assert bytes(byte ^ mask[index % 4] for index, byte in enumerate(data)) == payload
    unmasked = bytes((sent[0], sent[1] & 0x7F)) + sent[2:head] + payload
    assert messages(unmasked) == [payload]


def test_questions_differ_but_for_what_they_share() -> None:
    load = Load(shared_tokens=400)
    questions = [load.question(stream, request) for stream in range(3) for request in range(2)]
    assert len(set(questions)) == 6
    begins = {" ".join(question.split()[:400]) for question in questions}
    assert len(begins) == 1
    assert all(500 < len(question.split()) < 560 for question in questions)
    assert load.question(1, 1) == questions[3]


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.1, 10), (0.25, 25), (1.0, 100)])
def test_so_many_streams_stall(share: float, expected: int) -> None:
    load = Load(stalled=share)
    assert sum(load.is_stalled(stream) for stream in range(100)) == expected
    assert load.max_tokens < STALLED_TOKENS


def test_percentiles() -> None:
    assert percentile([], 50) == 0
    assert percentile([3.0, 1.0, 2.0], 50) == 2
    assert percentile([float(value) for value in range(100)], 99) == 99
    lags = [(0.001, 90), (0.01, 98), (0.02, 100), (float("inf"), 100)]
    assert lag_percentile(lags, 50) == 0.001
    assert lag_percentile(lags, 99) == 0.02
    assert lag_percentile([(0.1, 0)], 99) == 0


def test_figures_are_those_of_the_answers() -> None:
    good = Answer(0, "sse", 10.0, 10.5, 11.5, 3, 560, 0, 11, [0.4, 0.6])
    bad = Answer(1, "sse", 10.0, fault="cut")
    figures = Outcome([Played([good, bad], 0, 0, 2.0, 0.5)], 2.0).figures()
    assert figures["output_tok_s"] == 5.5
    assert (figures["requests"], figures["faults"], figures["fault"]) == (1, 1, "cut")
    assert figures["ttft_p50"] == 500
    assert figures["token_p50"] == 100
    assert figures["gap_max"] == 600
    assert figures["deltas_per_token"] == pytest.approx(3 / 11, abs=1e-3)
    assert figures["client_cpu"] == 0.25
    assert row("x", figures).startswith("x ")


def test_an_answer_that_came_in_one_read_has_no_speed() -> None:
    at_once = Answer(0, "ws", 10.0, 10.5, 10.5, 1, 560, 0, 11)
    figures = Outcome([Played([at_once], 0, 0, 2.0, 0.5)], 2.0).figures()
    assert (figures["token_p50"], figures["stream_tok_s"]) == (0, None)


def test_half_is_half() -> None:
    assert kinds_of("half", 5) == ["sse", "ws", "sse", "ws", "sse"]
    assert set(kinds_of("ws", 3)) == {"ws"}


def test_a_shape_has_the_files_of_the_tokenizer(tmp_path: Path) -> None:
    tokenizer, folder = tmp_path / "tokenizer", tmp_path / "shape"
    tokenizer.mkdir()
    folder.mkdir()
    (tokenizer / "tokenizer.json").write_text("{}")
    (tokenizer / "model.safetensors").write_text("heavy")
    shape_folder("tiny", tokenizer, folder)
    assert {path.name for path in folder.iterdir()} == {"config.json", "tokenizer.json"}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_a_process_is_watched() -> None:
    before = thread_times(os.getpid())[os.getpid()]
    with MemoryWatch(os.getpid(), 0.01) as memory:
        until_s = time.process_time() + 0.05
        while time.process_time() < until_s:
            pass
    spent = thread_times(os.getpid())[os.getpid()] - before
    assert 0.02 <= spent.total_s < 1
    assert len(memory.curve) >= 2
    assert all(size > 1 << 20 for _, size in memory.curve)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_a_scripted_server_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = tmp_path / "figures.json"
    arguments = "--scripted --protocol half --streams 3 --requests 2 --max-tokens 20 --clients 2"
    extra = ["--json", str(told), "--", "--log-level", "warning"]
    assert main([*arguments.split(), *extra]) == 0
    (figures,) = json.loads(told.read_text())["loads"]
    assert figures["output_tokens"] == 3 * 2 * 20
    assert figures["requests"] == 6
    assert 0 < figures["deltas_per_token"] <= 1
    assert figures["rss_mib"] > 10
    assert figures["whole_loop_busy"] >= 0
    assert "half 3 #0" in capsys.readouterr().out
