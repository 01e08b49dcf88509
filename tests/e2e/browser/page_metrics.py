"""`PageMetrics`: what a page costs its reader, measured inside Chromium: long tasks with what ran
in them, shifts of the layout, processor time, bytes of the network, frames. The page's own socket
is only listened to."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import CDPSession, Page

_OBSERVE = """() => {
  const metrics = {first: null, last: null, finish: null, numDeltas: 0, numChars: 0,
                   tasks: [], frames: [], shifts: [], events: []};
  window.pageMetrics = metrics;
  const named = (script) =>
    `${Math.round(script.duration)} ms (${Math.round(script.forcedStyleAndLayoutDuration)} of ` +
    `layout) ${script.sourceURL.split('/').at(-1)} ${script.sourceFunctionName} ${script.invoker}`;
  const observe = (type, add, options = {}) =>
    new PerformanceObserver((list) => list.getEntries().forEach(add))
      .observe({type, buffered: true, ...options});
  observe('longtask', ({startTime: at, duration: ms}) => metrics.tasks.push({at, ms}));
  observe('long-animation-frame', ({startTime: at, duration: ms, styleAndLayoutStart, scripts}) =>
    metrics.frames.push(
      {at, ms, style: at + ms - styleAndLayoutStart, scripts: scripts.map(named)}));
  observe('layout-shift', ({startTime: at, value, hadRecentInput: isInput, sources}) =>
    metrics.shifts.push(
      {at, value, isInput, nodes: sources.map(({node}) => node?.className ?? '')}));
  observe('event', ({name, startTime: at, duration: ms}) => metrics.events.push({name, at, ms}),
          {durationThreshold: 16});
  window.WebSocket = class extends WebSocket {
    constructor(...options) {
      super(...options);
      this.addEventListener('message', ({data}) => {
        const now = performance.now();
        if (data.includes('"type":"delta"')) {
          metrics.first ??= now;
          metrics.last = now;
          metrics.numDeltas += 1;
        } else if (data.includes('"type":"finish"')) metrics.finish = now;
      });
    }
  };
}"""

_TIMES = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration", "TaskDuration")


@dataclass(frozen=True, slots=True)
class PageTimes:
    """Processor time of the page's main thread so far, in seconds; `task` is all of it."""

    script: float
    layout: float
    style: float
    task: float

    def since(self, before: PageTimes) -> PageTimes:
        return PageTimes(
            self.script - before.script,
            self.layout - before.layout,
            self.style - before.style,
            self.task - before.task,
        )

    @property
    def work(self) -> float:
        """Script, layout and style."""
        return self.script + self.layout + self.style


class PageMetrics:
    """`PageMetrics(page)` before the page is opened."""

    def __init__(self, page: Page) -> None:
        page.add_init_script(f"({_OBSERVE})()")
        self._page = page
        self._session: CDPSession = page.context.new_cdp_session(page)
        # Of the thread alone: other work on the machine does not count.
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})
        self._session.send("Network.enable")
        self.num_bytes: dict[str, int] = {}
        """Bytes that came over the network, heads and all, by the path of what they brought."""
        self._paths: dict[str, str] = {}
        self._session.on("Network.requestWillBeSent", self._sent)
        self._session.on("Network.loadingFinished", self._loaded)

    def times(self) -> PageTimes:
        reply = self._session.send("Performance.getMetrics")
        values = {metric["name"]: metric["value"] for metric in reply["metrics"]}
        return PageTimes(*(values[name] for name in _TIMES))

    def heap_bytes(self) -> int:
        """What the page's scripts hold, after a collection."""
        self._session.send("HeapProfiler.collectGarbage")
        return int(self._session.send("Runtime.getHeapUsage")["usedSize"])

    def num_nodes(self) -> int:
        """DOM nodes that are alive, also those outside of the document, after a collection."""
        self._session.send("HeapProfiler.collectGarbage")
        return int(self._session.send("Memory.getDOMCounters")["nodes"])

    def observed(self) -> dict[str, Any]:
        """Times in milliseconds since the page's start: `first` and `last` delta, `finish`;
        `tasks` and `frames` longer than 50 ms, layout `shifts`, `events` longer than 16 ms."""
        found: dict[str, Any] = self._page.evaluate("() => window.pageMetrics")
        return found

    def _sent(self, event: dict[str, Any]) -> None:
        self._paths[event["requestId"]] = event["request"]["url"]

    def _loaded(self, event: dict[str, Any]) -> None:
        path = self._paths.get(event["requestId"], "?")
        self.num_bytes[path] = self.num_bytes.get(path, 0) + int(event["encodedDataLength"])


TRACE_CATEGORIES = ["devtools.timeline", "disabled-by-default-devtools.timeline"]
"""What `task_cpu_ms` reads, for `Browser.start_tracing`."""


def task_cpu_ms(trace: bytes) -> list[float]:
    """How long the thread of the busiest page worked on each of its tasks, in milliseconds of
    processor time, in the order of the tasks: what other programs took meanwhile is not in it."""
    events = json.loads(trace)["traceEvents"]
    calls = Counter((one["pid"], one["tid"]) for one in events if one["name"] == "FunctionCall")
    [(page, _)] = calls.most_common(1)
    tasks = [
        (one["ts"], one["tdur"] / 1000.0)
        for one in events
        if one["name"] == "RunTask" and "tdur" in one and (one["pid"], one["tid"]) == page
    ]
    return [cpu for _, cpu in sorted(tasks)]
