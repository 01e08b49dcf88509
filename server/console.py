"""What the server says to the person who started it: sentences, and progress while they wait.

Log lines go elsewhere (stderr, by `logging`); the console is for people."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from tqdm import tqdm

# Without a terminal: a line each tenth of the way, but not many at once.
_LINE_STEP = 0.1
_LINE_PAUSE_S = 2.0


class Console:
    """Writes to one stream. Used by the main thread, and by the engine's while it loads a
    model; never by both at once."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._is_terminal = self._stream.isatty()
        self._message = ""
        self._next_line = self._last_line_s = 0.0
        self._bar: tqdm[None] | None = None

    def say(self, sentence: str) -> None:
        """One line, at once."""
        self.close()
        self._stream.write(sentence + "\n")
        self._stream.flush()

    def progress(self, message: str, fraction: float | None) -> None:
        """Where a longer piece of work stands. `fraction` is the part done, 0 to 1; None: not
        known. On a terminal a bar moves; elsewhere a line is written now and then."""
        if message != self._message:
            self.close()
            self._message = message
            self._next_line, self._last_line_s = _LINE_STEP, time.monotonic()
            if fraction is None or not self._is_terminal:
                self._stream.write(f"{message} …\n")
                self._stream.flush()
        if fraction is None:
            return
        if self._is_terminal:
            self._move_bar(fraction)
            return
        now = time.monotonic()
        if self._next_line <= fraction < 1.0 and now >= self._last_line_s + _LINE_PAUSE_S:
            self._stream.write(f"{message} … {fraction:.0%}\n")
            self._stream.flush()
            self._next_line, self._last_line_s = fraction + _LINE_STEP, now

    def close(self) -> None:
        """Ends a bar, so that the next line stands on its own. Idempotent."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        self._message = ""

    def _move_bar(self, fraction: float) -> None:
        if self._bar is None:
            self._bar = tqdm(
                total=1.0,
                desc=self._message,
                file=self._stream,
                bar_format="{desc} {percentage:3.0f}% |{bar:30}| {elapsed}",
                ncols=shutil.get_terminal_size().columns,  # 80 where the terminal does not say
                miniters=0,  # by time alone: steps are fractions
            )
        self._bar.update(min(fraction, 1.0) - self._bar.n)
