"""`ServerState`: how the server is doing, in figures for people."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.api import EngineStats
from server.version import VERSION

_RATE_S = 1.0
"""A speed is measured over no shorter time."""
_SIZE_S = 60.0
"""The data folder is not measured more often: it may hold many files."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """Where the figures come from."""

    stats: Callable[[], EngineStats]
    num_answering: Callable[[], int]
    num_connections: Callable[[], int]


class ServerState:
    """Owned by the event loop. Remembers the last figures, to tell a speed."""

    def __init__(self, gauges: Gauges, data_dir: Path) -> None:
        self._gauges = gauges
        self._data_dir = data_dir
        self._began_s = time.monotonic()
        self._sample: tuple[float, int] | None = None
        self._tokens_per_s: float | None = None
        self._data: tuple[float, dict[str, int]] | None = None

    async def told(self) -> dict[str, Any]:
        """The fields of `/api/server` but the model's."""
        stats = self._gauges.stats()
        return {
            "version": VERSION,
            "uptime_s": round(time.monotonic() - self._began_s),
            "answering": self._gauges.num_answering(),
            "running": stats.num_running,
            "waiting": stats.num_waiting,
            "connections": self._gauges.num_connections(),
            "tokens_per_s": self._rate(stats.generated_tokens),
            "generated_tokens": stats.generated_tokens,
            "prompt_tokens": stats.prompt_tokens,
            "cached_tokens": stats.cached_tokens,
            "kv_used": stats.used_blocks / stats.total_blocks if stats.total_blocks else 0.0,
            "data": await self._data_size(),
        }

    def _rate(self, num_tokens: int) -> float | None:
        now_s = time.monotonic()
        if self._sample is None:
            self._sample = (now_s, num_tokens)
        since_s, before = self._sample
        if now_s - since_s >= _RATE_S:
            self._tokens_per_s = round((num_tokens - before) / (now_s - since_s), 1)
            self._sample = (now_s, num_tokens)
        return self._tokens_per_s

    async def _data_size(self) -> dict[str, int]:
        now_s = time.monotonic()
        if self._data is None or now_s - self._data[0] > _SIZE_S:
            self._data = (now_s, await asyncio.to_thread(_measure, self._data_dir))
        return self._data[1]


def _measure(folder: Path) -> dict[str, int]:
    """Bytes of the files below a folder, and what is free on its disk; 0 where it is not there."""
    used = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                used += os.lstat(os.path.join(root, name)).st_size
            except OSError:  # gone meanwhile
                continue
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        free = 0
    return {"used_bytes": used, "free_bytes": free}
