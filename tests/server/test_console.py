"""Progress for people: a bar on a terminal, a few lines elsewhere."""

from __future__ import annotations

import io

import pytest

from server.console import Console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("server.console.time.monotonic", clock.monotonic)
    return clock


def test_without_a_terminal_progress_is_a_few_lines(clock: Clock) -> None:
    out = io.StringIO()
    console = Console(out)
    for percent in range(101):
        clock.now += 0.5
        console.progress("Fetching", percent / 100)
    lines = out.getvalue().splitlines()
    assert lines[:3] == ["Fetching …", "Fetching … 10%", "Fetching … 20%"]
    assert len(lines) == 10


def test_quick_work_says_one_line(clock: Clock) -> None:
    out = io.StringIO()
    console = Console(out)
    for percent in range(101):
        clock.now += 0.001
        console.progress("Joining", percent / 100)
    assert out.getvalue() == "Joining …\n"


def test_progress_of_unknown_length_is_said_once() -> None:
    out = io.StringIO()
    console = Console(out)
    console.progress("Reading", None)
    console.progress("Reading", None)
    console.progress("Warming up", None)
    assert out.getvalue() == "Reading …\nWarming up …\n"


def test_on_a_terminal_a_bar_moves_and_a_sentence_starts_a_line_of_its_own() -> None:
    out = Terminal()
    console = Console(out)
    console.progress("Fetching", 0.0)
    console.progress("Fetching", 1.0)
    console.say("Done.")
    text = out.getvalue()
    assert "Fetching 100%" in text
    assert text.endswith("\nDone.\n")
    assert "\n" not in text[: text.index("100%")], "one line that moves"
