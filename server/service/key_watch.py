"""`KeyWatch`: a running server hears of keys that were made or revoked beside it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from server.service.key_store import KeyFileError, KeyStore

log = logging.getLogger(__name__)

INTERVAL_S = 0.5
"""Looking costs one `stat`: twice a second keeps a revoked key alive for less than one."""


class KeyWatch:
    """Looks for changes of the file on the running loop. Owned by the event loop's thread."""

    def __init__(self, keys: KeyStore, on_change: Callable[[], None]) -> None:
        self._keys = keys
        self._on_change = on_change
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to look. Idempotent."""
        if self._timer is None:
            self._schedule()

    def stop(self) -> None:
        """Ends looking. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Takes a change over, if there is one. One that cannot be read is logged, and the keys
        stay as they were."""
        try:
            has_changed = self._keys.refresh()
        except KeyFileError as error:
            log.error("API keys stay as they were: %s", error)
            return
        if has_changed:
            valid = sum(record.revoked is None for record in self._keys.ring.records)
            log.info("API keys were read again; %d are valid", valid)
            self._on_change()

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._tick)

    def _tick(self) -> None:
        self.look()
        self._schedule()
