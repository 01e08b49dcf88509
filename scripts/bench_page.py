"""Measures the page in Chromium while the longest answer that it must bear is written: 20,000
characters, 40 code blocks, 200 formulas, 200 tokens a second, on the real server over its socket.

    python -m scripts.bench_page
    python -m scripts.bench_page --runs 3 --phone --json page.json

Needs the extra `e2e` and Chromium. Leaves with 1 if a run had a task longer than 50 ms between one
second after the first text and two seconds after the end, if the answer's text is not the one that
was written, or if a budget of loading is exceeded. Use it on a machine that does nothing else.

Columns. tok/s: deltas a second, as the page received them. long: tasks longer than 50 ms in that
time, and the longest in milliseconds; early: the same before that time. frame: the longest frame
from its start to its pixels. cpu/tok: script, style and layout of the page's thread for each token,
in milliseconds; busy: the share of a core that this thread took in all. jumps: frames in which the
text had grown and its end was not in view at the bottom, and the most pixels off. key: the longest
delay of a key pressed meanwhile. settled: from the end of the text until all of it had its final
form. taskcpu: with --trace, the most processor time that one task took in that time; on a busy
machine it is what can be said of long tasks, and being watched so costs time of its own.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from scripts.machine_facts import machine_facts
from tests.e2e.browser.page_metrics import TRACE_CATEGORIES, PageMetrics, task_cpu_ms
from tests.e2e.browser.writing_server import LONG_QUESTION, NUM_CHARS, OPTIONS, TOKEN_S
from tests.support.server_process import ServerProcess

FIRST_LOAD_BYTES = 250_000
FIRST_PAINT_MS = 1000.0
LOWEST_RATE = 190.0
"""Deltas a second; below, the machine was too slow for the measurement to count."""

CHROMIUM_OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
DESKTOP = {"viewport": {"width": 1280, "height": 800}}
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}

_SAMPLE_BOTTOM = """() => {
  const area = document.querySelector('#scroll');
  window.offBottom = [];
  // Told after the page's own observer, in the same frame, before anything is painted.
  const sizes = new ResizeObserver(() =>
    window.offBottom.push(area.scrollHeight - area.scrollTop - area.clientHeight));
  for (const part of area.children) sizes.observe(part);
}"""
_SOURCE = """async (id) => {
  const reply = await fetch(`/api/conversations/${id}`);
  return (await reply.json()).messages.at(-1).text;
}"""


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("Chromium is not installed")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        module = "tests.e2e.browser.writing_server"
        with ServerProcess(Path(folder), *OPTIONS, str(TOKEN_S), module=module) as server:
            browser = playwright.chromium.launch(
                executable_path=chromium, args=list(CHROMIUM_OPTIONS)
            )
            loads = measure_loads(browser, server.address, options.loads)
            print(_loading_table(loads), flush=True)
            print(_HEAD, flush=True)
            runs = []
            for turn in range(options.runs):
                run = measure_stream(
                    browser,
                    server.address,
                    PHONE if options.phone else DESKTOP,
                    is_traced=options.trace,
                )
                runs.append(run)
                print(_row(turn, run), flush=True)
                for told in run["culprits"][: options.culprits]:
                    print(f"  {told}", flush=True)
            browser.close()
    faults = [*_loading_faults(loads), *(fault for run in runs for fault in run["faults"])]
    for fault in faults:
        print(f"fault: {fault}")
    if options.json:
        told = {"machine": machine_facts(()), "loads": loads, "runs": runs, "faults": faults}
        options.json.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    return 1 if faults else 0


def measure_loads(browser: Browser, address: str, times: int) -> dict[str, Any]:
    """First loads of the empty page, each with an empty cache, and a second one of the last."""
    paints, ready, num_bytes, again = [], [], {}, {}
    for _ in range(times):
        context = browser.new_context(base_url=address, **DESKTOP)  # type: ignore[arg-type]
        page = context.new_page()
        metrics = PageMetrics(page)
        _open(page)
        paints.append(_paint_ms(page))
        ready.append(page.evaluate("() => performance.now()"))
        page.wait_for_load_state("networkidle")
        num_bytes = dict(metrics.num_bytes)
        metrics.num_bytes.clear()
        _open(page)
        page.wait_for_load_state("networkidle")
        again = {path: size for path, size in metrics.num_bytes.items() if "/static/" in path}
        context.close()
    return {
        "first_paint_ms": round(statistics.median(paints), 1),
        "ready_ms": round(statistics.median(ready), 1),
        "first_bytes": sum(num_bytes.values()),
        "first_requests": len(num_bytes),
        "second_static_bytes": sum(again.values()),
        "asks_for_katex": any("katex" in path for path in num_bytes),
        "asks_for_highlighter": any("highlight.js" in path for path in num_bytes),
    }


def measure_stream(
    browser: Browser, address: str, screen: dict[str, Any], *, is_traced: bool = False
) -> dict[str, Any]:
    """One answer, from the question to two seconds after its end."""
    context = browser.new_context(base_url=address, **screen)
    page = context.new_page()
    page.set_default_timeout(120_000)
    metrics = PageMetrics(page)
    _open(page)
    page.evaluate(_SAMPLE_BOTTOM)
    page.locator("#question").fill(LONG_QUESTION)
    page.locator(".send").click()  # Enter breaks the line on a phone
    page.wait_for_function("() => window.pageMetrics.first !== null")
    if is_traced:
        page.wait_for_timeout(1000)
        browser.start_tracing(page=page, categories=TRACE_CATEGORIES)
    before = metrics.times()
    began = time.monotonic()
    while page.evaluate("() => window.pageMetrics.finish === null"):
        page.keyboard.type("a")
        page.wait_for_timeout(500)
    page.wait_for_function(
        "() => [...document.querySelectorAll('.answer')].at(-1).dataset.state !== 'running'"
    )
    settled = page.evaluate(
        """() => new Promise((resolve) => { const look = () =>
             document.querySelector('.answer .prose').hasAttribute('data-settled')
               ? resolve(performance.now()) : requestAnimationFrame(look); look();
             setTimeout(() => resolve(null), 10_000); })"""
    )
    wall = time.monotonic() - began
    spent = metrics.times().since(before)
    page.wait_for_timeout(2000)
    longest_cpu = max(task_cpu_ms(browser.stop_tracing())) if is_traced else None
    found = metrics.observed()
    off_bottom = page.evaluate("() => window.offBottom")
    shown = _shown(page)
    stored = page.evaluate(_SOURCE, page.url.rpartition("/")[2])
    context.close()
    figures = _figures(found, spent.work, spent.task, wall, settled, off_bottom, shown, stored)
    return {**figures, "longest_cpu_ms": longest_cpu and round(longest_cpu, 1)}


def _figures(
    found: dict[str, Any],
    work_s: float,
    task_s: float,
    wall_s: float,
    settled: float | None,
    off_bottom: list[float],
    shown: dict[str, int],
    stored: str,
) -> dict[str, Any]:
    start, end = found["first"] + 1000.0, found["finish"] + 2000.0
    counted = [
        task for task in found["tasks"] if start <= task["at"] + task["ms"] and task["at"] <= end
    ]
    early = [task for task in found["tasks"] if found["first"] <= task["at"] < start]
    frames = [frame for frame in found["frames"] if start <= frame["at"] <= end]
    keys = [
        event["ms"]
        for event in found["events"]
        if event["name"] == "keydown" and event["at"] > start
    ]
    rate = 1000.0 * (found["numDeltas"] - 1) / (found["last"] - found["first"])
    jumps = [off for off in off_bottom if off > 1.0]
    faults = []
    if counted:
        faults.append(f"{len(counted)} long tasks, the longest of {_longest(counted):.0f} ms")
    if len(stored) != NUM_CHARS:
        faults.append(f"the answer has {len(stored)} characters")
    if shown["code"] != 40 or shown["formulas"] != 200 or shown["set"] != 200:
        faults.append(f"the page shows {shown}")
    if rate < LOWEST_RATE:
        faults.append(f"only {rate:.0f} tokens a second came: the machine is too slow or too busy")
    if settled is None:
        faults.append("the text did not get its final form")
    return {
        "tokens_per_s": round(rate, 1),
        "long_tasks": len(counted),
        "longest_ms": round(_longest(counted), 1),
        "early_tasks": len(early),
        "early_longest_ms": round(_longest(early), 1),
        "longest_frame_ms": round(_longest(frames), 1),
        "cpu_ms_per_token": round(1000.0 * work_s / found["numDeltas"], 3),
        "busy": round(task_s / wall_s, 3),
        "jumps": len(jumps),
        "most_off_px": max(jumps, default=0.0),
        "longest_key_ms": max(keys, default=0.0),
        "settled_ms": None if settled is None else round(settled - found["finish"], 1),
        "shown": shown,
        "culprits": [
            f"{task['ms']:.0f} ms at {task['at'] - found['first']:.0f} ms after the first text "
            f"(end at {found['finish'] - found['first']:.0f}): "
            + "; ".join(_scripts_of(task, found["frames"]))
            for task in sorted(counted, key=lambda task: -task["ms"])
        ],
        "faults": faults,
    }


def _scripts_of(task: dict[str, float], frames: list[dict[str, Any]]) -> list[str]:
    for frame in frames:
        if frame["at"] - 1 <= task["at"] <= frame["at"] + frame["ms"]:
            whole, style = round(frame["ms"]), round(frame["style"])
            return [f"frame of {whole} ms, its last {style} style and layout", *frame["scripts"]]
    return ["no script"]


def _longest(entries: list[dict[str, Any]]) -> float:
    return max((entry["ms"] for entry in entries), default=0.0)


def _shown(page: Page) -> dict[str, int]:
    found: dict[str, int] = page.evaluate(
        """() => { const prose = document.querySelector('.answer .prose');
             const count = (selector) => prose.querySelectorAll(selector).length;
             return {code: count('.code'), highlighted: count('.code code:has(span)'),
                     formulas: count('.math'), set: count('.math .katex'), chips: count('.cite'),
                     links: count('a'), tables: count('table')}; }"""
    )
    return found


def _open(page: Page) -> None:
    page.goto("/")
    page.wait_for_selector("html.is-ready")


def _paint_ms(page: Page) -> float:
    return float(
        page.evaluate(
            """() => new Promise((resolve) => { const look = () => {
                 const [paint] = performance.getEntriesByName('first-contentful-paint');
                 if (paint) resolve(paint.startTime); else requestAnimationFrame(look); };
                 look(); })"""
        )
    )


def _loading_faults(loads: dict[str, Any]) -> list[str]:
    faults = []
    if loads["first_bytes"] >= FIRST_LOAD_BYTES:
        faults.append(f"the first load brings {loads['first_bytes']} bytes")
    if loads["first_paint_ms"] >= FIRST_PAINT_MS:
        faults.append(f"the first paint comes after {loads['first_paint_ms']} ms")
    if loads["second_static_bytes"]:
        faults.append(f"a second load brings {loads['second_static_bytes']} bytes of static files")
    if loads["asks_for_katex"] or loads["asks_for_highlighter"]:
        faults.append("an empty page asks for what it does not need")
    return faults


def _loading_table(loads: dict[str, Any]) -> str:
    return (
        f"first load: {loads['first_bytes'] / 1000:.1f} KB in {loads['first_requests']} requests, "
        f"first paint {loads['first_paint_ms']:.0f} ms, ready {loads['ready_ms']:.0f} ms; "
        f"second load: {loads['second_static_bytes']} bytes of static files"
    )


_COLUMNS = (
    ("tok/s", "tokens_per_s"), ("long", "long_tasks"), ("ms", "longest_ms"),
    ("early", "early_tasks"), ("ms", "early_longest_ms"), ("frame", "longest_frame_ms"),
    ("cpu/tok", "cpu_ms_per_token"), ("busy", "busy"), ("jumps", "jumps"), ("px", "most_off_px"),
    ("key", "longest_key_ms"), ("settled", "settled_ms"),
    ("taskcpu", "longest_cpu_ms"),
)  # fmt: skip
_HEAD = "run " + " ".join(f"{title:>8}" for title, _ in _COLUMNS)


def _row(turn: int, run: dict[str, Any]) -> str:
    return f"{turn:<3} " + " ".join(f"{run[key]!s:>8}" for _, key in _COLUMNS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3, help="answers to measure")
    parser.add_argument("--loads", type=int, default=5, help="first loads to measure")
    parser.add_argument("--phone", action="store_true", help="at the size of a phone")
    parser.add_argument(
        "--trace", action="store_true", help="also measure the processor time of each task"
    )
    parser.add_argument("--culprits", type=int, default=5, help="long tasks to tell of")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
