"""`ChildProcess`: a Python process in a session of its own, spoken to line by line."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import server

MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_OUTPUT_BYTES = 96 * 1024 * 1024
_MAX_STDERR_BYTES = 8 * 1024
_SOURCES = Path(server.__file__).parents[1]


class TooMuchOutputError(Exception):
    """The process said more than anybody wants to hear."""


class ChildEndedError(Exception):
    """The process ended without a last word. `status` is its exit status, negative for a
    signal; `said` is the end of what it wrote to standard error."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"the process ended with status {status}")
        self.status = status
        self.said = said

    @property
    def was_out_of_time(self) -> bool:
        """It used up its processor time."""
        return self.status == -signal.SIGXCPU

    @property
    def was_too_big(self) -> bool:
        """It was killed (as when memory runs out), or wrote a file over its limit."""
        return self.status in (-signal.SIGKILL, -signal.SIGXFSZ)


class ChildProcess:
    """Owned by the event loop; one task at a time reads from it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._num_bytes = 0
        self._stderr = asyncio.create_task(_tail(process.stderr))
        self._finishing: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, arguments: Sequence[str]) -> ChildProcess:
        """Python with these arguments. It sees our packages and nothing of our environment."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MAX_LINE_BYTES,
            start_new_session=True,
            env={
                "PATH": os.defpath,
                "PYTHONPATH": str(_SOURCES),
                "LANG": "C.UTF-8",
                # Threads of numeric libraries reserve address space, which is limited.
                "OMP_NUM_THREADS": "1",
                "MALLOC_ARENA_MAX": "2",
            },
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, line: bytes) -> None:
        """Writes a line. Raises ChildEndedError."""
        try:
            self._stdin.write(line)
            await self._stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise await self._ended() from None

    async def receive(self) -> bytes:
        """The next line. Raises ChildEndedError, TooMuchOutputError."""
        try:
            line = await self._stdout.readline()
        except ValueError:
            raise TooMuchOutputError from None
        if not line.endswith(b"\n"):
            raise await self._ended()
        self._num_bytes += len(line)
        if self._num_bytes > MAX_OUTPUT_BYTES:
            raise TooMuchOutputError
        return line

    def kill(self) -> None:
        """Ends the process and all that it started, without waiting. Idempotent."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):  # it may have ended by itself just now
                os.killpg(self._process.pid, signal.SIGKILL)

    async def wait(self) -> None:
        """Until the process is gone. Anybody may wait."""
        await self._process.wait()

    def end(self) -> asyncio.Task[None]:
        """Kills the process; the task is done when everything of it is gone. For who reads from
        it: nobody may go on reading."""
        self.kill()
        if self._finishing is None:
            self._finishing = asyncio.create_task(self._finish())
        return self._finishing

    async def _finish(self) -> None:
        self._stdin.close()
        # The pipe must be read to its end, or its transport stays open.
        while await self._stdout.read(MAX_LINE_BYTES):
            pass
        await self._process.wait()
        await asyncio.wait({self._stderr})

    async def _ended(self) -> ChildEndedError:
        """What became of the process, which has closed its output."""
        # `wait` leaves the task alone when the time is over while it waits.
        await asyncio.wait({self._stderr})
        return ChildEndedError(await self._process.wait(), self._stderr.result())


async def _tail(stream: asyncio.StreamReader) -> str:
    """The end of everything that is written to `stream`."""
    kept = b""
    while some := await stream.read(_MAX_STDERR_BYTES):
        kept = (kept + some)[-_MAX_STDERR_BYTES:]
    return kept.decode("utf-8", "replace").strip()
