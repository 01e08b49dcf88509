"""Clients that load a server: many streams in one process, over plain sockets.

Requests are made by hand and replies are only searched for what is counted, so that the clients
take as little of the machine from the server as they can. `serving_load` runs several such
processes at once.
"""

from __future__ import annotations

import base64
import json
import os
import random
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from scripts.serving_replies import PingFinder, Reply, SocketReply, SSEReply, masked, pong

Kind = Literal["sse", "ws"]

WORDS = (
    "the", "course", "material", "model", "data", "class", "time", "work", "part", "system",
    "state", "value", "point", "order", "test", "line", "number", "level", "group", "case",
    "list", "table", "chapter", "question", "answer", "student", "teacher", "week", "page",
    "theory", "method", "result", "figure", "example", "problem", "solution", "memory",
    "process", "thread", "queue", "block", "cache", "token", "layer", "weight", "graph", "node",
    "edge", "path", "tree", "search", "index", "key", "sort", "stack", "heap", "array",
    "string", "function", "type", "variable", "loop", "branch", "error", "event", "signal",
    "message", "client", "server", "request", "reply", "network", "address", "file", "folder",
    "record", "field", "user", "account", "session", "limit", "rate", "unit", "step",
)  # fmt: skip
"""Nearly each is one token, with the space before it."""
STALLED_TOKENS = 4096
"""What a stream asks for that will not read: more than the system's buffers hold."""
_TEMPLATE_TOKENS = 25
_SEND_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """What the streams ask for. `num_requests` one behind another; or, with `seconds`, as many as
    begin in that time. `is_scripted`: the server repeats the question, so that every answer is
    compared with what it has to be. `stalled`: of the streams, the part that reads a few events
    and then nothing more. Questions of another `round` are others, so that no round finds the
    prompts of one before it in the prefix cache."""

    max_tokens: int = 128
    prompt_tokens: int = 560
    shared_tokens: int = 0
    num_requests: int = 1
    seconds: float | None = None
    is_scripted: bool = False
    stalled: float = 0.0
    round: int = 0

    def is_stalled(self, stream: int) -> bool:
        """Whether the stream of that number reads no more: evenly spread over the numbers."""
        return int((stream + 1) * self.stalled) > int(stream * self.stalled)

    def question(self, stream: int, request: int) -> str:
        """Another one for each stream and request, but for the `shared_tokens` in front."""
        rng = random.Random(f"{self.round} {stream} {request}")
        num_own = max(1, self.prompt_tokens - self.shared_tokens - _TEMPLATE_TOKENS)
        if self.is_scripted:
            # Its tokens are bytes, and what it repeats must be as long as the answer. What is
            # lost, doubled or out of order is seen by the numbers.
            num_chars = max(num_own, 4 * self.max_tokens)
            numbers = " ".join(f"{number:05d}" for number in range(num_chars // 6 + 1))
            return f"{self.round}.{stream}.{request} {numbers}"
        own = " ".join(rng.choices(WORDS, k=num_own))
        shared = " ".join(random.Random(0).choices(WORDS, k=self.shared_tokens))
        return f"{shared} {own}".strip()

    def expected(self, question: str, num_tokens: int) -> str:
        """The scripted server's answer, of four characters a token."""
        return f"You asked: {question}"[: 4 * num_tokens]


@dataclass(slots=True)
class Answer:
    """One request and how it was answered. Times in seconds, of the system's monotonic clock."""

    stream: int
    kind: Kind
    sent_s: float
    first_s: float = 0.0
    last_s: float = 0.0
    num_deltas: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    gaps_s: list[float] = field(default_factory=list)
    """Between reads that brought text."""
    fault: str = ""
    """What was wrong with it; empty: nothing."""


class Stream:
    """One connection and the request on it."""

    def __init__(self, number: int, kind: Kind, address: tuple[str, int], load: Load) -> None:
        self.number = number
        self.kind = kind
        self.is_stalled = load.is_stalled(number)
        self.answers: list[Answer] = []
        self._load = load
        self._question = ""
        self._max_tokens = STALLED_TOKENS if self.is_stalled else load.max_tokens
        self.reply: Reply = SSEReply()
        self._pings = PingFinder()
        self.socket = socket.socket()
        if self.is_stalled:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(_SEND_TIMEOUT_S)
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._host = f"{address[0]}:{address[1]}"
        if kind == "ws":
            self._shake_hands()
        self.socket.setblocking(False)

    def ask(self) -> None:
        """Sends the next request."""
        request = len(self.answers)
        self._question = self._load.question(self.number, request)
        asked = [{"role": "user", "content": self._question}]
        options = {"max_tokens": self._max_tokens, "ignore_eos": True}
        if self.kind == "ws":
            self.reply = SocketReply()
            message = {"type": "chat", "id": f"{request}", "messages": asked, "options": options}
            data = masked(json.dumps(message).encode())
        else:
            self.reply = SSEReply()
            fields = {"stream": True, "stream_options": {"include_usage": True}}
            body = json.dumps({"messages": asked, **options, **fields}).encode()
            data = (
                f"POST /v1/chat/completions HTTP/1.1\r\nHost: {self._host}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            ).encode() + body
        self.answers.append(Answer(self.number, self.kind, time.monotonic()))
        self.socket.settimeout(_SEND_TIMEOUT_S)
        self.socket.sendall(data)
        self.socket.setblocking(False)

    def take(self, data: bytes) -> tuple[int, bool]:
        """Reads what came: how many deltas, and whether the answer has ended."""
        answer, reply = self.answers[-1], self.reply
        if self.kind == "ws":
            for payload in self._pings.feed(data):
                with suppress(OSError):  # a connection that is lost is seen by its reader
                    self.socket.send(pong(payload))
        is_over = reply.feed(data)
        num_new = reply.num_deltas - answer.num_deltas
        if num_new:
            now_s = time.monotonic()
            if answer.num_deltas:
                answer.gaps_s.append(now_s - answer.last_s)
            else:
                answer.first_s = now_s
            answer.last_s = now_s
            answer.num_deltas += num_new
        return num_new, is_over

    def check(self) -> None:
        """Reads the answer that has ended: what it holds and what it took."""
        answer = self.answers[-1]
        if answer.fault:
            return
        try:
            text, usage = self.reply.read()
        except (ValueError, KeyError, IndexError) as error:
            answer.fault = f"{type(error).__name__}: {error}"
            return
        answer.prompt_tokens = usage["prompt_tokens"]
        answer.cached_tokens = usage["prompt_tokens_details"]["cached_tokens"]
        answer.tokens = usage["completion_tokens"]
        answer.last_s = answer.last_s or time.monotonic()
        answer.first_s = answer.first_s or answer.last_s
        if answer.tokens != self._max_tokens:
            answer.fault = f"{answer.tokens} tokens, not {self._max_tokens}"
        elif self._load.is_scripted and text != self._load.expected(self._question, answer.tokens):
            answer.fault = f"the text is not the question: {text[:80]!r}"

    def _shake_hands(self) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            (
                f"GET /ws/v1 HTTP/1.1\r\nHost: {self._host}\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Protocol: lectern.v1\r\n\r\n"
            ).encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = self.socket.recv(1)
            if not byte:
                raise ConnectionError("the server closed a handshake")
            head += byte
        if not head.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(head.decode(errors="replace"))


@dataclass(frozen=True, slots=True)
class Hooks:
    """Told how far the streams are: when one has begun, when one has ended, and how many deltas
    have come."""

    on_begun: Callable[[], None]
    on_ended: Callable[[], None]
    on_deltas: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Played:
    """What one process has seen. `cpu_s`: the processor time that the clients took."""

    answers: list[Answer]
    num_dropped: int
    num_stalled: int
    wall_s: float
    cpu_s: float


def play(streams: list[Stream], load: Load, hooks: Hooks, timeout_s: float) -> Played:
    """Asks on all streams at once and reads until all have ended. Raises TimeoutError."""
    cpu_s, began_s = time.process_time(), time.monotonic()
    deadline_s = began_s + load.seconds if load.seconds is not None else None
    selector = selectors.DefaultSelector()
    for stream in streams:
        stream.ask()
        selector.register(stream.socket, selectors.EVENT_READ, stream)
    num_open = sum(not stream.is_stalled for stream in streams)
    while num_open:
        if time.monotonic() > began_s + (load.seconds or 0.0) + timeout_s:
            raise TimeoutError(f"{num_open} streams have not ended")
        num_deltas = 0
        for key, _ in selector.select(1.0):
            stream = key.data
            try:
                data = stream.socket.recv(1 << 17)
            except BlockingIOError:
                continue
            except OSError as error:
                data, stream.answers[-1].fault = b"", str(error)
            answer = stream.answers[-1]
            if not data:
                answer.fault = answer.fault or "the connection was closed"
                num_new, is_over = 0, True
            else:
                num_new, is_over = stream.take(data)
            if num_new and num_new == answer.num_deltas and len(stream.answers) == 1:
                hooks.on_begun()
            num_deltas += num_new
            if stream.is_stalled and (answer.num_deltas >= 3 or is_over):
                selector.unregister(stream.socket)
                continue
            if not is_over:
                continue
            if deadline_s is None:
                goes_on = len(stream.answers) < load.num_requests
            else:
                goes_on = time.monotonic() < deadline_s
            if goes_on:
                stream.check()
                if not answer.fault:
                    stream.ask()
                    continue
            selector.unregister(stream.socket)
            hooks.on_ended()
            num_open -= 1
        hooks.on_deltas(num_deltas)
    wall_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    stalled = [stream for stream in streams if stream.is_stalled]
    for stream in streams:
        if not stream.is_stalled:
            stream.check()
    return Played(
        [answer for stream in streams if not stream.is_stalled for answer in stream.answers],
        sum(_is_dropped(stream.socket) for stream in stalled),
        len(stalled),
        wall_s,
        cpu_s,
    )


def _is_dropped(stalled: socket.socket) -> bool:
    """The server has closed it: behind what is in its buffer, there is an end or a reset."""
    stalled.setblocking(False)
    try:
        while stalled.recv(1 << 17):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
