"""`scripts/keys`: makes, lists and revokes API keys, also while the server runs.

Exit codes: 0, or 1 when it cannot be done, 2 for a wrong option; then one sentence on stderr.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from server.config import default_data_dir, variable_name
from server.service.key_store import FILE_NAME, Access, KeyFile, KeyFileError, KeyRecord

EXIT_OK, EXIT_FAILURE = 0, 1


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    options = _parser().parse_args(argv)
    file = KeyFile(_path(options.file, options.data_dir))
    try:
        match options.command:
            case "create":
                _create(file, options.name, options.access or [Access.CHAT])
            case "revoke":
                file.revoke(options.name)
                _say(f"The key {options.name} is valid no more.")
            case _:
                _list(file)
    except KeyFileError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FAILURE
    return EXIT_OK


def _create(file: KeyFile, name: str, access: Sequence[Access]) -> None:
    is_first = not file.read().records
    key = file.create(name, access)
    # The key alone is what a script reads; the rest is for people.
    _say(key)
    sys.stderr.write(f"This is the key {name}; it is kept nowhere and not shown again.\n")
    if is_first:
        sys.stderr.write("It is the first one: from now on the API needs a key.\n")


def _list(file: KeyFile) -> None:
    records = file.read().records
    if not records:
        _say(f"There are no keys in {file.path}.")
    width = max((len(record.name) for record in records), default=0)
    for record in records:
        _say(f"{record.name:<{width}}  {_state(record):<18}  {', '.join(record.access)}")


def _state(record: KeyRecord) -> str:
    if record.revoked is None:
        return f"since {record.created:%Y-%m-%d}"
    return f"revoked {record.revoked:%Y-%m-%d}"


def _path(file: Path | None, data_dir: Path | None) -> Path:
    """Where the server looks: what the options say, then the environment, then the default."""
    named = file or os.environ.get(variable_name("api_keys_file"))
    if named:
        return Path(named).expanduser().absolute()
    folder = data_dir or os.environ.get(variable_name("data_dir")) or default_data_dir()
    return Path(folder).expanduser().absolute() / FILE_NAME


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/keys", description="Makes, lists and revokes API keys.", allow_abbrev=False
    )
    parser.add_argument("--file", type=Path, help="file of keys, as the server's --api-keys-file")
    parser.add_argument(
        "--data-dir", type=Path, help="the server's data folder, where api-keys.json is"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    create = commands.add_parser("create", help="make a key and print it, once")
    create.add_argument("name", metavar="NAME", help="by which the key is listed and revoked")
    create.add_argument(
        "--access",
        action="append",
        type=Access,
        choices=list(Access),
        metavar="|".join(Access),
        help="what the key is for; may be given more than once (default: chat)",
    )
    commands.add_parser("list", help="show the keys' names, never the keys")
    revoke = commands.add_parser("revoke", help="end a key at once")
    revoke.add_argument("name", metavar="NAME")
    return parser


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
