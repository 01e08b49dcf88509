"""The import rule, by tool and by trial."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import engine.api

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "triton")


def python(code: str) -> str:
    """What a fresh interpreter prints for `code`."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def imported_by(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_import_contracts() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_the_door_is_sorted_and_complete() -> None:
    names = engine.api.__all__
    assert names == sorted(names)
    public = {
        name
        for name, value in vars(engine.api).items()
        if not name.startswith("_")
        and (
            getattr(value, "__module__", "").startswith("engine.")
            or name in {"DeviceType", "LoadProgress", "RequestId"}
        )
    }
    assert public == set(names)


def test_a_scripted_server_loads_no_torch() -> None:
    code = f"""
import sys
from pathlib import Path
import server.__main__
from server.command_line import load_config
from server.app.factory import create_app
from engine.api import create_scripted_engine
config = load_config(["--scripted"])
create_app(config, create_scripted_engine(config.engine_config(Path("scripted"))))
print([name for name in {HEAVY} if name in sys.modules])
"""
    assert python(code) == "[]"


def test_help_and_errors_load_nothing_heavy() -> None:
    code = f"""
import contextlib, io, sys
import server.__main__
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    server.__main__.main(["--help"])
print([name for name in {(*HEAVY, "uvicorn", "sqlalchemy")} if name in sys.modules])
"""
    assert python(code) == "[]"


def test_one_module_knows_threads_and_asyncio() -> None:
    both = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "engine").rglob("*.py"))
        if {"threading", "asyncio"} <= imported_by(path)
    ]
    assert both == ["engine/async_engine.py"]


def test_web_holds_no_python() -> None:
    assert not list((ROOT / "web").rglob("*.py"))


@pytest.mark.parametrize("package", ["engine", "server"])
def test_packages_only_say_what_they_are(package: str) -> None:
    for path in (ROOT / package).rglob("__init__.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert all(isinstance(node, ast.Expr) for node in body), f"{path} holds code"
