"""Any frame that a client can send: the socket answers, or closes with a code that says why."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.service.options import GenerationOptions
from server.service.ws_protocol import MAX_FRAGMENTS
from tests.server.app.site import open_site
from tests.server.service.harness import hosted, serving
from tests.server.service.raw_socket import (
    BINARY,
    CLOSE,
    FIN,
    PING,
    PONG,
    TEXT,
    frame,
    raw_socket,
)

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

CODES = frozenset({1001, 1002, 1007, 1008, 1009, 1013})
"""What a client may be closed with: going away, against the protocol, no UTF-8, not allowed, too
large, overloaded."""
MAX_MESSAGE_BYTES = 20_000
ROLES = ("system", "developer", "user", "assistant", "tool", "nobody")

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["", "\0", "a\0b", "\u2028", "x" * 5000, "../..", "' OR 1=1 --"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
ids = st.text(min_size=1, max_size=8)
texts = st.text(max_size=30) | st.sampled_from(["When?", "\0", "<|im_end|>", "\u2028", "x" * 9000])
RUN, MESSAGE, CONVERSATION = "$run", "$message", "$conversation"
"""Stand for what the server has named last."""
FIELDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "hello": {"locale": texts},
    "ask": {"id": ids, "text": texts, "course": st.just("demo")},
    "chat": {
        "id": ids,
        "messages": st.lists(
            st.fixed_dictionaries({"role": st.sampled_from(ROLES), "content": texts}), max_size=3
        ),
    },
    "continue": {"id": ids, "message": st.just(MESSAGE)},
    "regenerate": {"id": ids, "message": st.just(MESSAGE)},
    "edit": {"id": ids, "message": st.just(MESSAGE), "text": texts},
    "cancel": {"run": st.just(RUN)},
    "attach": {"run": st.just(RUN), "after_seq": st.integers(-3, 9)},
    "feedback": {"id": ids, "message": st.just(MESSAGE), "value": st.sampled_from(["up", "none"])},
    "ping": {"id": ids},
}
OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "token": values,
    "resume": st.lists(
        st.fixed_dictionaries({"run": st.just(RUN), "after_seq": values}), max_size=3
    ),
    "conversation": st.just(CONVERSATION) | values,
    "parent": st.just(MESSAGE) | values,
    "note": texts | values,
    "on_disconnect": st.sampled_from(["keep", "abandon"]) | values,
    "options": st.dictionaries(
        st.sampled_from(sorted(GenerationOptions.__struct_fields__)), values, max_size=1
    )
    | st.just({"max_tokens": 3, "temperature": 0.5, "seed": 1, "stop": ["a"]}),
}


@st.composite
def messages(draw: st.DrawFn) -> str:
    """A message that is right, but perhaps for one of its fields."""
    type = draw(st.sampled_from(sorted(FIELDS)))
    message: dict[str, Any] = {name: draw(value) for name, value in FIELDS[type].items()}
    message["type"] = type
    if draw(st.integers(0, 2)) == 0:
        name = draw(st.sampled_from(sorted(OPTIONAL)))
        message[name] = draw(OPTIONAL[name])
    if draw(st.integers(0, 4)) == 0:
        message[draw(st.sampled_from(sorted(message)))] = draw(values)
    return json.dumps(message, ensure_ascii=draw(st.booleans()))


def _in_fragments(parts: list[bytes], *, is_ended: bool) -> bytes:
    last = len(parts) - 1
    firsts = [
        (0 if number else TEXT) | (FIN if is_ended and number == last else 0)
        for number in range(len(parts))
    ]
    return b"".join(frame(first, part) for first, part in zip(firsts, parts, strict=True))


json_texts = st.one_of(
    values.map(json.dumps),
    st.text(max_size=40),
    st.sampled_from(['{"type":"ask","id":"a","text":"\\ud800"}', "[" * 5000, '{"type":' * 900, ""]),
)
binary = st.binary(max_size=40)
raw_frames = st.one_of(
    st.builds(frame, st.sampled_from([FIN | TEXT, FIN | BINARY]), binary),
    st.sampled_from([MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES + 1]).map(
        lambda size: frame(FIN | TEXT, b"x" * size)
    ),
    st.builds(_in_fragments, st.lists(binary, min_size=1, max_size=4), is_ended=st.booleans()),
    st.builds(frame, st.sampled_from([FIN | PING, FIN | PONG, PING]), st.binary(max_size=130)),
    st.builds(frame, st.integers(0, 255), binary, masked=st.booleans()),
    st.builds(
        frame, st.just(FIN | CLOSE), st.sampled_from([b"", b"\x03", b"\x03\xe8", b"\0\0bye"])
    ),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[str | bytes]:
    """What one client sends: mostly messages, since a frame against the protocol is the last."""
    sent: list[str | bytes] = []
    for _ in range(draw(st.integers(4, 16))):
        kind = draw(st.integers(0, 19))
        if kind < 17:
            sent.append(draw(messages()))
        else:
            sent.append(draw(json_texts if kind < 19 else raw_frames))
    return sent


@pytest.fixture(scope="module")
async def port(
    anyio_backend: object, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[int]:
    """A whole site, its application and its database with it."""
    folder: Path = tmp_path_factory.mktemp("fuzzed")
    async with (
        open_site(folder, max_messages_per_s=100_000) as site,
        hosted(site.app, ws_max_size=MAX_MESSAGE_BYTES) as port,
    ):
        yield port


@given(conversations(), st.booleans())
@settings(
    max_examples=120,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_any_frame_is_answered_or_closes_the_socket(
    port: int, sent: list[str | bytes], in_fragments: bool
) -> None:
    async with raw_socket(port) as client:
        named = dict.fromkeys((RUN, MESSAGE, CONVERSATION), "unknown")
        for data in sent:
            if isinstance(data, str):
                for name, id in named.items():
                    data = data.replace(name, id)
                text = data.encode("utf-8", "surrogatepass")
                parts = [text[:3], b"", text[3:]] if in_fragments else [text]
                data = _in_fragments(parts, is_ended=True)
            with contextlib.suppress(ConnectionError):
                await client.write(data)
            told, code = await client.is_alive()
            for message in told:
                assert message.get("code") != "internal", (data, message)
                if message["type"] == "accepted":
                    named[RUN] = message["run"]
                if message["type"] == "accepted" and message["message"]:
                    named[MESSAGE] = message["message"]
                    named[CONVERSATION] = message["conversation"]
            if code is not None:
                assert code in CODES or data[0] == FIN | CLOSE, (data, code)
                break
    async with raw_socket(port) as other:
        assert await other.is_alive() == ([], None)


async def test_fragments_without_a_byte_have_a_limit() -> None:
    """They count for nothing against the size of a message, and filled the memory."""
    async with serving() as server, raw_socket(server.port) as client:
        await client.write(frame(TEXT, b'{"type":'))
        await client.write(frame(0, b"") * (MAX_FRAGMENTS - 2))
        await client.write(frame(FIN, b'"ping"}'))
        assert await client.read() == (TEXT, b'{"type":"pong"}')
        await client.write(frame(TEXT, b'{"type":') + frame(0, b"") * (MAX_FRAGMENTS + 2))
        assert await client.read() == (CLOSE, b"\x03\xf1too many fragments")
