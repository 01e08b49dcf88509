"""`ScriptedPeer`: stands in for the server's end of the page's WebSocket, so that a test says
exactly which events come. The rest of the page (HTTP, sources, history) is the real server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, WebSocketRoute

Event = dict[str, Any]

OPENS_RUN = ("ask", "edit", "regenerate", "continue", "carry")

CONTEXT: Event = {
    "type": "context",
    "window": 4096,
    "system": 100,
    "passages": 900,
    "history": 0,
    "question": 20,
    "reserved": 512,
    "turns_kept": 0,
    "turns_dropped": 0,
    "turns_skipped": 0,
    "passages_used": 2,
    "passages_dropped": 1,
}
USAGE: Event = {
    "prompt_tokens": 1020,
    "completion_tokens": 7,
    "total_tokens": 1027,
    "prompt_tokens_details": {"cached_tokens": 256},
}
TIMING: Event = {"queue_ms": 1.0, "ttft_ms": 120.0, "total_ms": 900.0, "tokens_per_s": 40.0}


def passage(n: int, *, used: bool = True) -> Event:
    title = f"Material {n}"
    return {
        "n": n,
        "id": f"p{n}",
        "material": None,
        "title": title,
        "locator": f"Part {n}",
        "text": f"Text of passage {n}.",
        "score": 1.0,
        "used": used,
    }


def opening(*passages: Event, not_found: bool = False, **context: Any) -> list[Event]:
    """What comes before the text."""
    retrieval = {
        "type": "retrieval",
        "passages": list(passages),
        "dropped": sum(not one["used"] for one in passages),
        "not_found": not_found,
    }
    start = {
        "type": "start",
        "model": "peer",
        "prompt_tokens": 1020,
        "cached_tokens": 256,
        "max_tokens": 512,
        "max_tokens_lowered": False,
        "continued": False,
    }
    return [retrieval, {**CONTEXT, **context}, start]


def deltas(text: str, num_chars: int = 3) -> list[Event]:
    return [
        {"type": "delta", "text": text[at : at + num_chars]}
        for at in range(0, len(text), num_chars)
    ]


def finish(kind: str = "eos", *, can_continue: bool = False, **detail: Any) -> Event:
    reasons = {"max_tokens": "length", "context_window": "length", "kv_capacity": "length"}
    reasons |= dict.fromkeys(
        ("cancelled", "deadline", "shutdown", "client_gone", "slow_client"), "abort"
    )
    return {
        "type": "finish",
        "finish_reason": reasons.get(kind, "stop"),
        "finish_detail": {"type": kind, **detail},
        "usage": USAGE,
        "timing": TIMING,
        "can_continue": can_continue,
    }


FRAME = "() => new Promise(requestAnimationFrame)"
"""To wait for the page's next frame."""


def wait_until(page: Page, is_so: Callable[[], bool]) -> None:
    """Lets the page go on until something is so that is known here, not in the page."""
    end_s = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end_s, "it has not come"
        page.evaluate(FRAME)


class ScriptedPeer:
    """`open_chat(before=peer.attach_to)`; then whatever opens a run is answered with the events
    that `answer` was given, numbered from 1: the n-th run writes answer `a<n>` to question `q<n>`,
    or goes on with the answer that it names. What the page sends is kept in `received`."""

    def __init__(self, *, is_fallback: bool = False, max_message_bytes: int = 1 << 20) -> None:
        self.received: list[Event] = []
        self.is_deaf = False
        """Whether the page is neither welcomed nor told that its pings came, as if its connection
        hung."""
        self.feedback_reply: Event | None = {"type": "done"}
        """None: it is left without a reply."""
        self.ends_when_cancelled = False
        """Whether a `cancel` is followed by the end of the run."""
        self.num_asked = 0
        self._is_fallback = is_fallback
        self._limits = {"max_message_bytes": max_message_bytes}
        self._route: WebSocketRoute | None = None
        self._script: Callable[[int], list[Event]] = lambda _: []
        self._refusal: Event | None = None
        self._is_mute = False
        self._seq = 0
        self._questions: dict[str, str] = {}
        """The question of each answer."""

    def attach_to(self, page: Page) -> None:
        page.route_web_socket("**/ws/v1", self._connect)

    def answer(self, events: list[Event]) -> None:
        """The events of the next runs, after `accepted`."""
        self._refusal = None
        self._is_mute = False
        self._script = lambda _: events

    def refuse(self, code: str, *, retryable: bool, in_run: bool = False) -> None:
        """The next messages that would open a run are refused; `in_run`: they open one, which
        fails before it accepts them."""
        self._refusal = {"type": "error", "code": code, "message": "", "retryable": retryable}
        self._is_mute = False
        if in_run:
            self._refusal |= {"run": "refused", "seq": 1}

    def ignore(self) -> None:
        """The next messages get no reply, as if they had been lost on the way."""
        self._is_mute = True

    def send(self, *events: Event) -> None:
        """More events of the run; one that has a `seq` keeps it."""
        for event in events:
            self._seq = event.get("seq", self._seq + 1)
            self._tell({"run": f"r{self.num_asked}", "seq": self._seq, **event})

    def sent(self, *types: str) -> list[Event]:
        """What the page has sent of these types, in order."""
        return [message for message in self.received if message["type"] in types]

    def tell(self, message: Event) -> None:
        """A message that belongs to no run."""
        self._tell(message)

    def accept(self, message: Event) -> None:
        """Opens the run of a message that was ignored."""
        self._open(message)

    def close(self, code: int, reason: str = "") -> None:
        """Closes the page's connection; it will come back."""
        assert self._route is not None
        self._route.close(code=code, reason=reason)

    def _connect(self, route: WebSocketRoute) -> None:
        self._route = route
        route.on_message(self._receive)

    def _receive(self, data: str | bytes) -> None:
        message = json.loads(data)
        self.received.append(message)
        if message["type"] in ("hello", "ping") and self.is_deaf:
            return
        if message["type"] == "hello":
            model = {"name": "peer", "is_fallback": self._is_fallback, "max_model_len": 4096}
            welcome = {"type": "welcome", "session": "s", "model": model, "active_runs": []}
            self._tell({**welcome, "limits": self._limits})
        elif message["type"] == "ping":
            self._tell({"type": "pong"})
        elif self._is_mute:
            pass
        elif message["type"] in OPENS_RUN and self._refusal is not None:
            self._tell({**self._refusal, "id": message["id"]})
        elif message["type"] in OPENS_RUN:
            self._open(message)
        elif message["type"] == "cancel" and self.ends_when_cancelled:
            self.send(finish("cancelled"))
        elif message["type"] == "feedback" and self.feedback_reply is not None:
            self._tell({**self.feedback_reply, "id": message["id"]})

    def _open(self, message: Event) -> None:
        self.num_asked += 1
        self._seq = 0
        answer, question = f"a{self.num_asked}", f"q{self.num_asked}"
        named = message.get("message", "")
        if message["type"] == "continue":
            answer, question = named, self._questions[named]
        elif message["type"] == "regenerate":
            question = self._questions[named]
        self._questions[answer] = question
        accepted = {
            "type": "accepted",
            "id": message["id"],
            "conversation": "c2" if message["type"] == "carry" else "c1",
            "message": answer,
            "user_message": None if message["type"] == "carry" else question,
            "parent": message.get("parent"),
        }
        if message["type"] == "carry":
            accepted["carried_from"] = named
        self.send(accepted, *self._script(self.num_asked))

    def _tell(self, message: Event) -> None:
        assert self._route is not None
        self._route.send(json.dumps(message))
