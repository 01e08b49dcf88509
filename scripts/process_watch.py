"""What a running process takes, as Linux tells it: processor time of each thread, and memory."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ThreadTime:
    """Processor time in seconds, in the program and in the system for it."""

    user_s: float = 0.0
    system_s: float = 0.0

    def __sub__(self, earlier: ThreadTime) -> ThreadTime:
        return ThreadTime(self.user_s - earlier.user_s, self.system_s - earlier.system_s)

    @property
    def total_s(self) -> float:
        return self.user_s + self.system_s


def thread_times(pid: int) -> dict[int, ThreadTime]:
    """By thread id; the process's first thread has the process's id."""
    found: dict[int, ThreadTime] = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            text = Path(f"/proc/{pid}/task/{thread}/stat").read_text("latin-1")
        except OSError:
            continue  # it has ended meanwhile
        fields = text[text.rindex(")") + 2 :].split()
        found[int(thread)] = ThreadTime(
            int(fields[11]) / _TICKS_PER_S, int(fields[12]) / _TICKS_PER_S
        )
    return found


def resident_bytes(pid: int) -> int:
    """Memory of the process that is in RAM."""
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * _PAGE_BYTES


class MemoryWatch:
    """`with MemoryWatch(pid) as watch:` looks at a process's memory every `interval_s`."""

    def __init__(self, pid: int, interval_s: float = 0.25) -> None:
        self.curve: list[tuple[float, int]] = []
        """Seconds since the beginning, and bytes."""
        self._pid = pid
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        began_s = time.monotonic()
        while True:
            self.curve.append((time.monotonic() - began_s, resident_bytes(self._pid)))
            if self._stop.wait(self._interval_s):
                return
