"""The `websockets` package, sync and async: questions, two at once, attach, cancel, keep-alives."""

import asyncio
import json
import sys

from websockets.asyncio.client import connect as connect_async
from websockets.sync.client import connect

ADDRESS = sys.argv[1].replace("http://", "ws://") + "/ws/v1"
PROTOCOL = ["lectern.v1"]
LONG = "word " * 400


def chat(id, text, **options):
    messages = [{"role": "user", "content": text}]
    return json.dumps({"type": "chat", "id": id, "messages": messages, "options": options})


def text_of(events):
    return "".join(event["text"] for event in events if event["type"] == "delta")


found = {}
with connect(ADDRESS, subprotocols=PROTOCOL) as socket:
    found["subprotocol"] = socket.subprotocol
    socket.send(json.dumps({"type": "hello"}))
    welcome = json.loads(socket.recv())
    found["welcome"] = welcome["type"]
    socket.send(chat("q1", "hello there"))
    events = []
    for frame in socket:
        events.append(json.loads(frame))
        if events[-1]["type"] in ("finish", "error"):
            break
    found["sync"] = [
        text_of(events),
        events[-1]["finish_reason"],
        [event["seq"] for event in events] == list(range(1, len(events) + 1)),
        events[-1]["usage"]["total_tokens"] > 0,
    ]
    socket.send(json.dumps({"type": "ping", "id": "p1"}))
    found["pong"] = json.loads(socket.recv())


async def main():
    async with connect_async(ADDRESS, subprotocols=PROTOCOL, ping_interval=0.2) as socket:
        await socket.send(json.dumps({"type": "hello"}))
        session = json.loads(await socket.recv())["session"]
        await socket.send(chat("a", "first one"))
        await socket.send(chat("b", "second one"))
        runs = {}
        ended = 0
        while ended < 2:
            event = json.loads(await socket.recv())
            runs.setdefault(event["run"], []).append(event)
            ended += event["type"] == "finish"
        found["two"] = sorted(text_of(events) for events in runs.values())
        await socket.send(chat("c", LONG))
        run = json.loads(await socket.recv())["run"]
    # The run goes on without its socket; another one takes it up, then ends it.
    async with connect_async(ADDRESS, subprotocols=PROTOCOL) as socket:
        await socket.send(json.dumps({"type": "hello", "token": session}))
        welcome = json.loads(await socket.recv())
        found["active"] = [active["run"] == run for active in welcome["active_runs"]]
        await socket.send(json.dumps({"type": "attach", "run": run, "after_seq": 0}))
        while json.loads(await socket.recv())["type"] != "delta":
            pass
        await socket.send(json.dumps({"type": "cancel", "run": run}))
        event = {"type": ""}
        while event["type"] != "finish":
            event = json.loads(await socket.recv())
        found["cancelled"] = [event["finish_reason"], event["finish_detail"]]


asyncio.run(main())
print(json.dumps(found))
