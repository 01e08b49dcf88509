"""The two ways a streamed answer comes, read as it comes: it is only searched for what is counted,
and read in full when it has ended."""

from __future__ import annotations

import json
import os
import re
from typing import Any, Protocol


class Reply(Protocol):
    """Reads one reply as it comes."""

    @property
    def num_deltas(self) -> int: ...

    def feed(self, data: bytes) -> bool:
        """Takes what came; whether the reply has ended."""
        ...

    def read(self) -> tuple[str, dict[str, Any]]:
        """Text and usage. Raises ValueError for a reply that is not as it should be."""
        ...


class _Counting:
    """Counts a mark in data that comes in pieces."""

    def __init__(self, mark: bytes) -> None:
        self.data = bytearray()
        self.count = 0
        self._mark = mark
        self._seen = 0

    def feed(self, data: bytes) -> None:
        self.data += data
        mark = self._mark
        found = self.data.count(mark, self._seen)
        if found:
            self.count += found
            self._seen = self.data.rfind(mark) + len(mark)
        self._seen = max(self._seen, len(self.data) - len(mark) + 1)


class SSEReply:
    """`/v1/chat/completions`, streamed over HTTP/1.1 in chunks."""

    def __init__(self) -> None:
        self._reply = _Counting(b'"finish_reason":null')

    @property
    def num_deltas(self) -> int:
        return max(0, self._reply.count - 1)  # the first tells the role

    def feed(self, data: bytes) -> bool:
        self._reply.feed(data)
        whole = self._reply.data
        if whole.endswith(b"\r\n0\r\n\r\n"):
            return True
        return not whole.startswith(b"HTTP/1.1 200") and len(whole) > 12

    def read(self) -> tuple[str, dict[str, Any]]:
        head, _, rest = bytes(self._reply.data).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise ValueError(bytes(self._reply.data[-300:]).decode(errors="replace"))
        body = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body += rest[: int(size, 16)]
            rest = rest[int(size, 16) + 2 :]
        frames = [frame for frame in body.split(b"\n\n") if not frame.startswith(b":")]
        if frames[-2:] != [b"data: [DONE]", b""]:
            raise ValueError("the stream does not end with [DONE]")
        text, num_ends = "", 0
        usage: dict[str, Any] = {}
        for frame in frames[:-2]:
            chunk = json.loads(frame.removeprefix(b"data: "))
            if "error" in chunk:
                raise ValueError(chunk["error"]["message"])
            for choice in chunk["choices"]:
                text += choice["delta"].get("content") or ""
                num_ends += choice["finish_reason"] is not None
            usage = chunk.get("usage") or usage
        if num_ends != 1 or not usage:
            raise ValueError(f"{num_ends} ends, usage {usage}")
        return text, usage


class SocketReply:
    """One run's messages on a WebSocket."""

    def __init__(self) -> None:
        self._reply = _Counting(b'"type":"delta"')
        self._ends = re.compile(rb'"type":"(?:finish|error)"')

    @property
    def num_deltas(self) -> int:
        return self._reply.count

    def feed(self, data: bytes) -> bool:
        self._reply.feed(data)
        whole = self._reply.data
        # The end may have come in parts: the last frame must be whole.
        return bool(self._ends.search(whole[-2048:])) and _frames(bytes(whole))[1] == len(whole)

    def read(self) -> tuple[str, dict[str, Any]]:
        text, last_seq = "", 0
        usage: dict[str, Any] = {}
        for message in messages(bytes(self._reply.data)):
            event = json.loads(message)
            if event["type"] == "error":
                raise ValueError(event["message"])
            if "seq" in event:
                if event["type"] != "snapshot" and event["seq"] != last_seq + 1:
                    raise ValueError(f"event {event['seq']} follows {last_seq}")
                last_seq = event["seq"]
            if event["type"] == "delta":
                text += event["text"]
            elif event["type"] == "snapshot":
                text = event["text"]
            elif event["type"] == "finish":
                usage = event["usage"]
        if not usage:
            raise ValueError("the run has no end")
        return text, usage


def messages(data: bytes) -> list[bytes]:
    """The text messages in what a WebSocket server sent: whole frames; pings are left out."""
    return _frames(data)[0]


def _frames(data: bytes) -> tuple[list[bytes], int]:
    """The text messages, and where the last frame ends: behind the data if it is not whole."""
    found, at = [], 0
    while at < len(data):
        opcode, size, at = data[at] & 0x0F, data[at + 1] if at + 1 < len(data) else 0, at + 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size = int.from_bytes(data[at : at + width], "big")
            at += width
        if opcode == 1:
            found.append(data[at : at + size])
        at += size
    return found, at


class PingFinder:
    """Finds the pings in what a WebSocket server sends, which closes connections that answer none.
    Frames are not taken apart for it: uvicorn's pings have four bytes, and no message of JSON has
    such a header in it."""

    _HEAD = b"\x89\x04"
    _SIZE = 6

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """What the pings in `data` bear."""
        data = self._rest + data
        found, at = [], 0
        while (at := data.find(self._HEAD, at)) >= 0 and at + self._SIZE <= len(data):
            found.append(data[at + 2 : at + self._SIZE])
            at += self._SIZE
        begun = at if at >= 0 else len(data) - 1
        self._rest = data[begun:] if at >= 0 or data.endswith(self._HEAD[:1]) else b""
        return found


def pong(payload: bytes) -> bytes:
    """The answer to a ping, under a mask of zeros."""
    return bytes((0x8A, 0x80 | len(payload))) + bytes(4) + payload


def masked(payload: bytes) -> bytes:
    """A text message as a client sends it."""
    size = len(payload)
    head = bytes((0x81, 0x80 | size)) if size < 126 else b"\x81\xfe" + size.to_bytes(2, "big")
    mask = os.urandom(4)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")
