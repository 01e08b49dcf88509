"""What the README says exists and is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.config_table import config_table
from server.config import ServerConfig, option_name, variable_name

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TOP = ("engine", "server", "web", "tests", "scripts")


def tree_paths() -> list[str]:
    """The paths of the file tree: each line's first word under the folders that lead to it."""
    block = re.search(r"```tree\n(.*?)```", README, re.DOTALL)
    assert block, "the README shows the file tree in a block marked `tree`"
    paths, folders = [], [""]
    for line in block[1].splitlines():
        if not line.strip():
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        folders[depth + 1 :] = []
        paths.append(folders[depth] + name)
        folders.append(folders[depth] + name if name.endswith("/") else "")
    return paths


def test_every_path_named_in_the_text_exists() -> None:
    named = set(re.findall(rf"`((?:{'|'.join(TOP)})/[\w./-]*)`", README))
    assert named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_every_linked_file_exists() -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)]+)\)", README)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_file_tree_is_true() -> None:
    assert [path for path in tree_paths() if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("package", ["engine", "server"])
def test_the_file_tree_is_complete(package: str) -> None:
    shown = set(tree_paths())
    modules = {
        str(path.relative_to(ROOT))
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py" and "versions" not in path.parts
    }
    assert sorted(modules - shown) == []


def test_the_configuration_table_is_the_configuration() -> None:
    assert config_table() in README, "scripts/fix writes it"
    for name in ServerConfig.model_fields:
        assert f"`{option_name(name)}`" in README
        assert f"`{variable_name(name)}`" in config_table()


@pytest.mark.parametrize("script", ["setup", "serve", "test", "check", "fix"])
def test_scripts_are_explained_and_runnable(script: str) -> None:
    path = ROOT / "scripts" / script
    assert f"`scripts/{script}`" in README
    assert path.stat().st_mode & 0o111
    assert "set -euo pipefail" in path.read_text(encoding="utf-8")
