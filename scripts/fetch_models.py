"""Fetches catalogue models into the data folder: all of them, or those named as arguments."""

from __future__ import annotations

import sys

from server.config import ServerConfig
from server.console import Console
from server.model_catalogue import CATALOGUE
from server.model_source import ModelSourceError, fetch_entry


def main(names: list[str]) -> int:
    """Returns the exit code: 1 if a model cannot be had."""
    console = Console()
    folder = ServerConfig().models_dir
    for name in names or CATALOGUE:
        try:
            path = fetch_entry(CATALOGUE[name], folder, console.say, console.progress)
        except ModelSourceError as error:
            console.say(str(error))
            return 1
        console.say(f"{name}: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
