"""Other people's JavaScript: the browser's own WebSocket, EventSource and fetch, without the page's
modules."""

from __future__ import annotations

import json
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from playwright.sync_api import Browser

from tests.e2e.browser.conftest import OpenChat
from tests.support.server_process import ServerProcess

QUESTION = "Where is the lab — 实验室在哪? \u2028 \U0001f469\u200d\U0001f393 " + "again and " * 8

BOTH_WAYS = """
async (question) => {
  const socket = new WebSocket(`ws://${location.host}/ws/v1`, ["lectern.v1"]);
  const told = { frames: [], data: [], ids: [], sources: [] };
  const follow = (run, afterSeq) => new Promise((resolve) => {
    const source = new EventSource(`/v1/runs/${run}/events?after_seq=${afterSeq}`);
    const data = [];
    source.onmessage = (event) => {
      data.push(event.data);
      told.ids.push(event.lastEventId);
    };
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) resolve(data);
    };
  });
  const following = [];
  const ended = new Promise((resolve) => {
    socket.onmessage = ({ data }) => {
      const event = JSON.parse(data);
      if (event.type === "welcome") {
        const messages = [{ role: "user", content: question }];
        const options = { max_tokens: 60 };
        socket.send(JSON.stringify({ type: "chat", id: "js", messages, options }));
      }
      if (!("seq" in event)) return;
      told.frames.push(data);
      if (event.seq === 1) following.push(follow(event.run, 0));
      if (event.seq === 9) following.push(follow(event.run, 7));
      if (event.type === "finish") resolve();
    };
  });
  socket.onopen = () => socket.send(JSON.stringify({ type: "hello" }));
  await ended;
  told.sources = await Promise.all(following);
  told.protocol = socket.protocol;
  const closed = new Promise((resolve) => { socket.onclose = resolve; });
  socket.close(1000);
  const { code, wasClean } = await closed;
  return { ...told, code, wasClean };
}
"""

COMPLETION = """
async (question) => {
  const reply = await fetch("/v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ messages: [{ role: "user", content: question }], stream: true }),
  });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let raw = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return raw;
    raw += value;
  }
}
"""

CLOSED_WITH = """
(url) => new Promise((resolve) => {
  const socket = new WebSocket(url, ["lectern.v1"]);
  socket.onclose = ({ code, wasClean }) => resolve({ code, wasClean });
})
"""


def test_websocket_and_eventsource_tell_the_same(open_chat: OpenChat) -> None:
    """Every character of every event; and an EventSource stops by itself after the end."""
    told: dict[str, Any] = open_chat().page.evaluate(BOTH_WAYS, QUESTION)
    assert told["protocol"] == "lectern.v1"
    events = [json.loads(frame) for frame in told["frames"]]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert "".join(event.get("text", "") for event in events).strip() == QUESTION.strip()
    assert events[-1]["finish_reason"] == "stop"
    first, second = told["sources"]
    assert first == told["frames"]
    assert second == told["frames"][7:]
    assert sorted(map(int, told["ids"])) == sorted(
        [*range(1, len(events) + 1), *range(8, len(events) + 1)]
    )
    assert (told["code"], told["wasClean"]) == (1000, True)


def test_a_completion_by_fetch(open_chat: OpenChat) -> None:
    raw: str = open_chat().page.evaluate(COMPLETION, QUESTION)
    *events, done, rest = raw.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events if event[0] != ":"]
    pieces = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(pieces).strip() == QUESTION.strip()


def test_a_foreign_page_is_told_why(browser: Browser, server: ServerProcess) -> None:
    """A close code that its script can read, not a failed handshake; and no answer."""
    # A browser may open a second connection that it does not use.
    elsewhere = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
    serving = threading.Thread(target=elsewhere.serve_forever, daemon=True)
    serving.start()
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{elsewhere.server_port}/nothing")
    url = server.address.replace("http://", "ws://") + "/ws/v1"
    assert page.evaluate(CLOSED_WITH, url) == {"code": 1008, "wasClean": True}
    page.close()
    elsewhere.shutdown()
    elsewhere.server_close()
