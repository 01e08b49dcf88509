"""No regular expression takes long: questions, materials and answers may hold anything, and a
match holds up everybody. Each is tried on long runs of the signs that it speaks of."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import regex

import engine.text
import server

ROOT = Path(__file__).parents[2]
NUM_CHARS = 5000
MOST_CPU_S = 1.0
"""Twenty times what the slowest takes where it reads each character a few times."""
SIGNS = " \n\t\ra1中.,、?!()[]|-#*`$\"'=:<"
STARTS_ANYWHERE = r"{name}\.(?:search|finditer|findall|sub|subn|split)\("
# Not imported without a running migration.
LEFT_OUT = ("server.store.migrations.", "server.__main__")


def _expressions() -> Iterator[tuple[ModuleType, str, Any]]:
    for package in (server, engine.text):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.startswith(LEFT_OUT):
                continue
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                for one in value if isinstance(value, (tuple, list)) else [value]:
                    if isinstance(one, (re.Pattern, regex.Pattern)):
                        yield module, name, one


EXPRESSIONS = {id(one): (module, name, one) for module, name, one in _expressions()}
SOURCE = "\n".join(
    path.read_text() for folder in ("server", "engine") for path in (ROOT / folder).rglob("*.py")
)


class _TooLong(Exception):
    pass


@contextmanager
def _at_most(cpu_s: float) -> Iterator[None]:
    """Processor time of this process, so that a busy machine counts for nothing. Both modules look
    for signals while they match."""

    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _units(pattern: str) -> list[str]:
    """Single signs, those of the expression too, and pairs of the commonest."""
    own = re.findall(r"[^\w\s\\]|(?<![\\\w])\w", pattern)
    signs = list(dict.fromkeys([*SIGNS, *own]))
    return signs + [f"{one} " for one in signs] + [f" {one}" for one in "(#-|"]


@pytest.mark.parametrize(
    ("module", "name", "expression"),
    [
        pytest.param(module, name, expression, id=f"{module.__name__}.{name}")
        for module, name, expression in EXPRESSIONS.values()
    ],
)
def test_no_text_takes_an_expression_long(module: ModuleType, name: str, expression: Any) -> None:
    source = inspect.getsource(module) if name.startswith("_") else SOURCE
    searches = re.search(STARTS_ANYWHERE.format(name=re.escape(name)), source) is not None
    is_bytes = isinstance(expression.pattern, bytes)
    written = expression.pattern.decode() if is_bytes else expression.pattern
    for unit in _units(written):
        run = unit * (NUM_CHARS // len(unit))
        for text in (f"{run}\0", f"a{run}x"):
            try:
                with _at_most(MOST_CPU_S):
                    tried = text.encode() if is_bytes else text
                    expression.match(tried)
                    expression.fullmatch(tried)
                    if searches:
                        for _ in expression.finditer(tried):
                            pass
            except _TooLong:
                pytest.fail(f"{NUM_CHARS} characters of {unit!r}")


def test_an_expression_that_takes_long_would_be_noticed() -> None:
    with pytest.raises(_TooLong), _at_most(0.05):
        re.compile(r"(?:a|a{1,6})+$").match("a" * 40 + "b")
    with pytest.raises(_TooLong), _at_most(0.05):
        regex.compile(r"[\s,]+(?:x)?[\s,]*$").search(" " * NUM_CHARS + "b")
