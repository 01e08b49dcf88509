"""A load of several client processes on one server, and what came of it in figures."""

from __future__ import annotations

import multiprocessing
import re
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

from scripts.process_watch import MemoryWatch, ThreadTime, thread_times
from scripts.serving_client import Answer, Hooks, Kind, Load, Played, Stream, play

_POLL_S = 0.002
_MIN_WINDOW_S = 0.1
"""Linux counts processor time in hundredths of a second."""
_START_TIMEOUT_S = 120.0
_MICRO = 1e6


@dataclass(frozen=True, slots=True)
class Target:
    """A server. `pid` None: one that is not on this machine, of which only the clients tell."""

    host: str
    port: int
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """What the server took in some time. Thread 0 is the process's first, which runs the event
    loop; the others follow by what they took."""

    wall_s: float
    num_deltas: int
    threads: list[ThreadTime]

    def figures(self, prefix: str) -> dict[str, Any]:
        """Processor time for each delta in microseconds, and shares of a core."""
        loop, deltas = self.threads[0], max(1, self.num_deltas)
        busy = [round(thread.total_s / self.wall_s, 3) for thread in self.threads[1:6]]
        return {
            f"{prefix}deltas_s": round(self.num_deltas / self.wall_s),
            f"{prefix}loop_us_per_delta": round(_MICRO * loop.total_s / deltas, 2),
            f"{prefix}loop_user_us_per_delta": round(_MICRO * loop.user_s / deltas, 2),
            f"{prefix}loop_busy": round(loop.total_s / self.wall_s, 3),
            f"{prefix}threads_busy": [share for share in busy if share],
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """One load that has been played. `whole` and `window`: what the server took in all, and from
    the time when all streams had begun until the first had ended. `lags`: of the event loop, so
    many up to each upper bound in seconds. `memory`: seconds and bytes."""

    played: list[Played]
    wall_s: float
    whole: Window | None = None
    window: Window | None = None
    lags: list[tuple[float, int]] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)

    @property
    def answers(self) -> list[Answer]:
        return [answer for played in self.played for answer in played.answers]

    def figures(self) -> dict[str, Any]:
        """Ready for JSON; times in milliseconds, unless the name says otherwise."""
        answers = [answer for answer in self.answers if not answer.fault]
        faults = [answer.fault for answer in self.answers if answer.fault]
        tokens = sum(answer.tokens for answer in answers)
        deltas = sum(answer.num_deltas for answer in answers)
        speeds = [
            (answer.last_s - answer.first_s) / (answer.tokens - 1)
            for answer in answers
            if answer.tokens > 1
        ]
        # An answer that came in one read has taken no time.
        typical_s = percentile(speeds, 50)
        gaps = [gap for answer in answers for gap in answer.gaps_s]
        ttfts = [answer.first_s - answer.sent_s for answer in answers]
        found: dict[str, Any] = {
            "requests": len(answers),
            "faults": len(faults),
            "fault": faults[0] if faults else "",
            "prompt_tokens": round(_mean([answer.prompt_tokens for answer in answers])),
            "cached_tokens": round(_mean([answer.cached_tokens for answer in answers])),
            "output_tokens": tokens,
            "wall_s": round(self.wall_s, 3),
            "output_tok_s": round(tokens / self.wall_s, 1),
            "stream_tok_s": round(1 / typical_s, 1) if typical_s else None,
            "deltas_per_token": round(deltas / max(1, tokens), 3),
            "client_cpu": round(max(p.cpu_s / p.wall_s for p in self.played), 2),
            "stalled": sum(played.num_stalled for played in self.played),
            "stalled_dropped": sum(played.num_dropped for played in self.played),
        }
        for name, values in (("ttft", ttfts), ("token", speeds), ("gap", gaps)):
            for percent in (50, 99):
                found[f"{name}_p{percent}"] = round(1000 * percentile(values, percent), 2)
            found[f"{name}_max"] = round(1000 * max(values, default=0.0), 2)
        if self.window is not None:
            found["window_s"] = round(self.window.wall_s, 3)
            found |= self.window.figures("")
        if self.whole is not None:
            found |= self.whole.figures("whole_")
        if self.memory:
            curve = [(round(at_s, 2), round(size / 2**20, 1)) for at_s, size in self.memory]
            found["rss_mib"] = curve[0][1]
            found["rss_growth_mib"] = round(max(size for _, size in curve) - curve[0][1], 1)
            found["rss_curve_mib"] = curve[:: max(1, len(curve) // 60)]
        if self.lags:
            found["lag_p99"] = round(1000 * lag_percentile(self.lags, 99), 2)
        return found


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many of 100 do not exceed; 0 without values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def lag_percentile(lags: Sequence[tuple[float, int]], percent: float) -> float:
    """The upper bound, in seconds, of the bucket that `percent` of all lags do not exceed; lags
    are counted with all smaller ones, as Prometheus has them."""
    total = max((count for _, count in lags), default=0)
    for bound_s, count in lags:
        if total and count >= total * percent / 100:
            return bound_s
    return 0.0


def put_load(
    target: Target,
    load: Load,
    kinds: Sequence[Kind],
    *,
    num_processes: int,
    timeout_s: float = 120.0,
) -> Outcome:
    """Plays `load` on one stream for each of `kinds`, in `num_processes` processes. All are
    connected before the first asks. Raises RuntimeError where a client process failed."""
    context = multiprocessing.get_context("spawn")
    num_processes = max(1, min(num_processes, len(kinds)))
    barrier = context.Barrier(num_processes + 1)
    counts = [context.Array("Q", 3, lock=False) for _ in range(num_processes)]
    pipes, workers = [], []
    for index in range(num_processes):
        mine, theirs = context.Pipe(duplex=False)
        numbered = list(enumerate(kinds))[index::num_processes]
        worker = context.Process(
            target=_work,
            args=(target, load, numbered, barrier, counts[index], theirs, timeout_s),
            daemon=True,
        )
        worker.start()
        theirs.close()
        pipes.append(mine)
        workers.append(worker)
    barrier.wait(_START_TIMEOUT_S)
    began_s = time.monotonic()
    num_reading = sum(not load.is_stalled(stream) for stream in range(len(kinds)))
    before = _lags(target)
    with _Watched(target, counts, num_reading) as watched:
        results = [pipe.recv() for pipe in pipes]
    for worker in workers:
        worker.join()
    failed = [result for result in results if isinstance(result, str)]
    if failed:
        raise RuntimeError(failed[0])
    played: list[Played] = results
    answers = [answer for one in played for answer in one.answers]
    first_s = min((answer.sent_s for answer in answers), default=began_s)
    last_s = max((answer.last_s for answer in answers), default=first_s)
    after = dict(_lags(target))
    lags = [(bound_s, after.get(bound_s, count) - count) for bound_s, count in before]
    wall_s = last_s - first_s
    return Outcome(played, wall_s, watched.whole, watched.window, lags, watched.memory)


def _work(
    target: Target,
    load: Load,
    numbered: Sequence[tuple[int, Kind]],
    barrier: Barrier,
    counts: Any,
    pipe: Connection,
    timeout_s: float,
) -> None:
    """The life of a client process."""

    def count(index: int, more: int = 1) -> None:
        counts[index] += more

    hooks = Hooks(lambda: count(0), lambda: count(1), lambda more: count(2, more))
    try:
        address = (target.host, target.port)
        streams = [Stream(number, kind, address, load) for number, kind in numbered]
        barrier.wait(_START_TIMEOUT_S)
        pipe.send(play(streams, load, hooks, timeout_s))
    except (OSError, TimeoutError, threading.BrokenBarrierError) as error:
        barrier.abort()
        pipe.send(f"{type(error).__name__}: {error}")


class _Watched:
    """Watches the server while the clients run, in a thread."""

    def __init__(self, target: Target, counts: Sequence[Any], num_streams: int) -> None:
        self.whole: Window | None = None
        self.window: Window | None = None
        """None where it was too short to tell anything."""
        self.memory: list[tuple[float, int]] = []
        self._pid = target.pid
        self._counts = counts
        self._num_streams = num_streams
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Watched:
        if self._pid is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._pid is not None:
            self._thread.join()

    def _watch(self) -> None:
        assert self._pid is not None
        began = _Moment(self._pid, 0)
        with MemoryWatch(self._pid) as memory:
            while self._sum(0) < self._num_streams and not self._is_over.wait(_POLL_S):
                pass
            all_begun = _Moment(self._pid, self._sum(2))
            while not self._sum(1) and not self._is_over.wait(_POLL_S):
                pass
            first_ended = _Moment(self._pid, self._sum(2))
            self._is_over.wait()
        self.memory = memory.curve
        self.whole = began.until(_Moment(self._pid, self._sum(2)))
        window = all_begun.until(first_ended)
        if window.wall_s >= _MIN_WINDOW_S:
            self.window = window

    def _sum(self, index: int) -> int:
        return sum(counts[index] for counts in self._counts)


class _Moment:
    """What a process has taken so far."""

    def __init__(self, pid: int, num_deltas: int) -> None:
        self.at_s = time.monotonic()
        self.num_deltas = num_deltas
        self.times = thread_times(pid)
        self._pid = pid

    def until(self, later: _Moment) -> Window:
        spent = {
            thread: at - self.times.get(thread, ThreadTime()) for thread, at in later.times.items()
        }
        loop = spent.pop(self._pid, ThreadTime())
        others = sorted(spent.values(), key=lambda thread: thread.total_s, reverse=True)
        num_deltas = later.num_deltas - self.num_deltas
        return Window(max(1e-9, later.at_s - self.at_s), num_deltas, [loop, *others])


def _lags(target: Target) -> list[tuple[float, int]]:
    """The buckets of the server's event loop lag so far."""
    # Proxies of the environment are for other hosts.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{target.host}:{target.port}/metrics", timeout=30) as reply:
        text = reply.read().decode()
    found = re.findall(r'^lectern_loop_lag_seconds_bucket{le="([^"]+)"} (\S+)$', text, re.M)
    return [(float(bound), int(float(count))) for bound, count in found]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
