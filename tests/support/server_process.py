"""The whole server as a process of its own, on a free port, with a data folder of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]
READY = re.compile(r"Lectern is ready: (http://\S+)")
TIMEOUT_S = 60.0 * float(os.environ.get("TEST_TIMEOUT_SCALE", "1"))


class ServerProcess:
    """`with ServerProcess(folder, "--scripted") as server:` – started and ready inside the block.

    At the end it is stopped by SIGTERM; what it wrote is printed when the block failed, so that
    pytest shows it."""

    def __init__(
        self, data_dir: Path, *options: str, wait_ready: bool = True, module: str = "server"
    ) -> None:
        self.output: list[str] = []
        self.address = ""
        self._wait_ready = wait_ready
        self._is_gone = False
        self._news = threading.Condition()
        command = [sys.executable, "-m", module, "--data-dir", str(data_dir)]
        if "--port" not in options:
            command += ["--port", "0"]
        self._process = subprocess.Popen(
            [*command, *options],
            cwd=ROOT,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """Everything that the process has written."""
        return "".join(self.output)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        if self._wait_ready:
            try:
                self.wait_ready()
            except BaseException:
                self._end()
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()
        if error is not None:
            sys.stderr.write(f"--- output of the server ---\n{self.text}")

    def wait_ready(self) -> str:
        """The address, as soon as the server says that it is ready."""
        self.wait_for("Lectern is ready: ")
        return self.address

    def wait_for(self, text: str) -> None:
        """Returns as soon as the server has written a line with `text`."""
        with self._news:
            self._news.wait_for(lambda: self._is_gone or text in self.text, TIMEOUT_S)
        if text not in self.text:
            raise AssertionError(f"The server did not say {text!r}:\n{self.text}")

    def send_signal(self, number: int = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = TIMEOUT_S) -> int:
        """The exit code, when the process has ended and its output is complete."""
        code = self._process.wait(timeout_s)
        self._reader.join(timeout_s)
        return code

    def stop(self) -> int:
        """SIGTERM, then `wait`."""
        self.send_signal()
        return self.wait()

    def _end(self) -> None:
        if self._process.poll() is None:
            self.send_signal()
            try:
                self._process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if match := READY.search(line):
                self.address = match[1]
            with self._news:
                self.output.append(line)
                self._news.notify_all()
        with self._news:
            self._is_gone = True
            self._news.notify_all()
