"""`python -m server import`: a folder into a course, from a shell."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio.to_thread
import psutil
import pytest

from server import __main__ as entry
from server import import_command
from server.command_line import load_config
from server.console import Console
from server.store.database import Database, sqlite_url
from server.store.users import Users
from tests.server.app.site import open_site

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "term"
    (folder / "week05").mkdir(parents=True)
    (folder / "week05" / "lab3.md").write_text("# Lab 3\n\nzebra words", "utf-8")
    (folder / "notes.txt").write_text("Notes\n\nsome words", "utf-8")
    (folder / "photo.png").write_bytes(b"\x89PNG")
    with zipfile.ZipFile(folder / "more.zip", "w") as archive:
        archive.writestr("unit2/slides.md", "# Slides\n\ngiraffe words")
    return folder


def run(tmp_path: Path, *arguments: str) -> int:
    """The command over a data folder of the test's own."""
    options = ("--scripted", "--data-dir", str(tmp_path / "data"))
    return entry.main(["import", *arguments, *options])


def materials(tmp_path: Path) -> dict[str, tuple[str, int | None, str]]:
    with closing(sqlite3.connect(tmp_path / "data" / "lectern.db")) as connection:
        rows = connection.execute("SELECT name, kind, week, state FROM material")
        return {name: (kind, week, state) for name, kind, week, state in rows}


def test_a_folder_becomes_a_course(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (str(folder), "--course", "Compilers", "--create", "--week", "9")
    assert run(tmp_path, *arguments) == 0
    assert materials(tmp_path) == {
        "week05/lab3.md": ("lab", 5, "ready"),
        "notes.txt": ("lecture", 9, "ready"),
        "unit2/slides.md": ("lecture", 9, "ready"),
    }
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1) for line in lines[:4]] == [
        ["added", "unit2/slides.md"],
        ["added", "notes.txt"],
        ["skipped", "photo.png: not a kind of file that can be read"],
        ["added", "week05/lab3.md"],
    ]
    assert lines[4] == "Compilers: 3 added, 1 skipped."

    (folder / "notes.txt").write_text("Notes\n\nother words", "utf-8")
    (folder / "bad.pdf").write_bytes(b"no pdf")
    assert run(tmp_path, *arguments) == 1
    out = capsys.readouterr().out
    assert "updated    notes.txt" in out
    assert "failed     bad.pdf: bad.pdf is damaged" in out
    assert out.splitlines()[-1] == "Compilers: 1 failed, 2 unchanged, 1 updated, 1 skipped."
    assert len(materials(tmp_path)) == 4


def test_new_files_may_be_hidden(tmp_path: Path, folder: Path) -> None:
    assert run(tmp_path, str(folder), "--course", "X", "--create", "--hidden") == 0
    with closing(sqlite3.connect(tmp_path / "data" / "lectern.db")) as connection:
        hidden = connection.execute("SELECT is_hidden FROM material").fetchall()
    assert hidden == [(1,)] * 3


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--course", "nope"), "There is no course nope. Add --create to make it."),
        (("--course", "x", "--create", "--teacher", "ghost"), "no teacher's account ghost"),
        (("--course", "x", "--port", "70000"), "--port"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    tmp_path: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    told: str,
) -> None:
    assert run(tmp_path, str(folder), *arguments) == entry.EXIT_USAGE
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


def test_a_folder_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, str(tmp_path / "nothing"), "--course", "x") == import_command.EXIT_USAGE
    assert "is no folder" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("x",), ("x", "--course", "y", "--week", "0")])
def test_argparse_refuses_what_is_missing_or_out_of_range(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as raised:
        entry.main(["import", *arguments])
    assert raised.value.code == import_command.EXIT_USAGE


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_a_killed_import_is_finished_by_the_next_server(
    tmp_path: Path, anyio_backend: object
) -> None:
    """SIGKILL while a file is being parsed: its process dies too, nothing half-read is found, and
    the next start goes on."""
    folder, data = tmp_path / "term", tmp_path / "data"
    folder.mkdir()
    paragraph = "The scheduler of the zebra divides a budget of tokens between requests. " * 8
    text = "\n\n".join(f"## Section {n}\n\n{n} {paragraph}" for n in range(1200))
    (folder / "long.md").write_text(f"# Long\n\n{text}", "utf-8")
    command = ["import", str(folder), "--course", "demo", "--create", "--scripted"]
    async with open_site(data):
        pass  # makes the database and the course "demo"
    await anyio.to_thread.run_sync(kill_while_it_parses, data, command)
    async with open_site(data) as site:
        reading = site.app.library._queue._running or site.app.library._queue._all()
        for one in list(reading):
            await one.file.over.wait()
        events = await site.answer("zebra scheduler budget", course="demo")
        assert events["retrieval"][0]["passages"][0]["title"] == "Long"
    assert materials(tmp_path)["long.md"][2] == "ready"


def kill_while_it_parses(data: Path, command: list[str]) -> None:
    """Starts the command and kills it as soon as its file is being parsed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "server", *command, "--data-dir", str(data)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    query = "SELECT state, attempts FROM material WHERE name = 'long.md'"
    with closing(sqlite3.connect(data / "lectern.db")) as connection:
        wait_until(lambda: connection.execute(query).fetchone() == ("parsing", 1))
        parent = psutil.Process(process.pid)
        wait_until(lambda: parent.children() != [])
        (child,) = parent.children()
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        wait_until(lambda: not child.is_running())
        assert connection.execute(query).fetchone() == ("parsing", 1)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Looks again and again, for half a minute."""
    give_up_at = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_a_course_may_have_a_teacher(tmp_path: Path, folder: Path) -> None:
    data = tmp_path / "data"
    async with open_site(data) as site:
        await site.account("teacher", "tia")
    options = import_command._parse(
        [str(folder), "--course", "Nets", "--create", "--teacher", "tia"]
    )[0]
    config = load_config(["--scripted", "--data-dir", str(data)])
    console = Console()
    assert await import_command._import(options, config, console, None) == 0
    database = Database(sqlite_url(data / "lectern.db"))
    await database.open()
    tia = await Users(database).with_login("tia")
    await database.close()
    assert tia is not None
    with closing(sqlite3.connect(data / "lectern.db")) as connection:
        (row,) = connection.execute(
            "SELECT c.title, e.role, c.is_open, c.join_code IS NULL FROM course c "
            "JOIN enrolment e ON e.course_id = c.id WHERE e.user_id = ?",
            (tia.id,),
        )
    assert row == ("Nets", "teacher", 0, 0)
