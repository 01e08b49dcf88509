"""Whatever the server imports is installed by the runtime dependencies alone."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
IMPORTS = """
import sys
import engine.async_engine, engine.assembly, engine.execution.model_runner
import engine.models.registry, engine.models.gguf_conversion, engine.models.dummy
import server.app.factory, server.host, server.hub, server.model_source, server.__main__
print("\\n".join(sorted({name.partition(".")[0] for name in sys.modules})))
"""

# Libraries look for these and do without them.
OPTIONAL = {"sentencepiece", "sniffio"}


def closure(requirements: list[str]) -> set[str]:
    """Names of the distributions that the requirements bring here, with what those bring."""
    found: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *requirement.extras):
            key = (canonicalize_name(requirement.name), extra)
            if key in found:
                continue
            found.add(key)
            try:
                further = requires(requirement.name) or []
            except PackageNotFoundError:
                continue
            for text in further:
                candidate = Requirement(text)
                if candidate.marker is None or candidate.marker.evaluate({"extra": extra}):
                    waiting.append(candidate)
    return {name for name, _ in found}


def test_imports_come_with_the_runtime_dependencies() -> None:
    """A library that only a test tool brought along was missing on a fresh machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    installed = closure(project["dependencies"]) | {project["name"]}
    run = subprocess.run(
        [sys.executable, "-c", IMPORTS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    owners = packages_distributions()
    missing = {
        name: owners[name]
        for name in run.stdout.split()
        if name in owners
        and name not in OPTIONAL
        and not {canonicalize_name(owner) for owner in owners[name]} & installed
    }
    assert missing == {}
