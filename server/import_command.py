"""`python -m server import FOLDER --course NAME`: a term's folder into a course, from a shell.

It works on the same data folder and database as the server, which may run meanwhile, and loads the
model's tokenizer only. One line a file is printed.

Exit codes: 0 when every file that can be read is in the course; 1 when one could not be read or
stored, or nothing could begin; 2 for a wrong option, or a course that is not there.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.api import EngineError, Tokenizer, load_tokenizer
from server.command_line import ConfigError, load_config
from server.config import ServerConfig
from server.console import Console

EXIT_OK, EXIT_FAILURE, EXIT_USAGE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the command line asks for."""

    folder: Path
    course: str
    create: bool
    teacher: str | None
    week: int | None
    kind: Literal["lecture", "lab", "exam", "admin", "other"] | None
    hidden: bool


def main(argv: Sequence[str], console: Console | None = None) -> int:
    """Imports; returns the exit code. `argv`: without the program's name and `import`."""
    console = console or Console()
    options, rest = _parse(argv)
    try:
        config = load_config(rest)
    except ConfigError as error:
        return _refuse(error, EXIT_USAGE)
    if not options.folder.is_dir():
        return _refuse(f"{options.folder} is no folder.", EXIT_USAGE)
    return _run(options, config, console)


def _run(options: ImportOptions, config: ServerConfig, console: Console) -> int:
    # Late, so that --help and a wrong option answer at once.
    from sqlalchemy.exc import SQLAlchemyError

    from server.model_source import ModelSourceError
    from server.service.errors import ServiceError
    from server.store.database import UnsupportedDatabaseError

    try:
        tokenizer = _load_tokenizer(config, console)
        return asyncio.run(_import(options, config, console, tokenizer))
    except CourseOptionError as error:
        return _refuse(error, EXIT_USAGE)
    except UnsupportedDatabaseError as error:
        return _refuse(f"{error} (--database-url).", EXIT_USAGE)
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        return _refuse(f"The database fails ({reason}).", EXIT_FAILURE)
    except (EngineError, ModelSourceError, ServiceError, OSError) as error:
        return _refuse(error, EXIT_FAILURE)
    except KeyboardInterrupt:
        console.say("Stopped. What is in the course stays; the same command goes on.")
        return EXIT_FAILURE


class CourseOptionError(Exception):
    """The course or the teacher that was named is not there; the message is a sentence."""


def _parse(argv: Sequence[str]) -> tuple[ImportOptions, list[str]]:
    parser = argparse.ArgumentParser(
        prog="python -m server import",
        description="Brings a folder of files into a course: Markdown, text, HTML, CSV, PDF, "
        "docx, pptx, and zip files of these. Folders in it are looked through; importing again "
        "only reads what has changed. The server may run meanwhile.",
        epilog="The server's own options may follow, as --data-dir, --database-url, --model.",
        allow_abbrev=False,
    )
    parser.add_argument("folder", type=Path, help="where the files are")
    parser.add_argument(
        "--course", required=True, metavar="NAME", help="the course's short name, id or title"
    )
    parser.add_argument(
        "--create", action="store_true", help="make the course, titled NAME, if it is not there"
    )
    parser.add_argument(
        "--teacher",
        metavar="LOGIN",
        help="with --create: the account that teaches it; without, it is open to every guest",
    )
    parser.add_argument("--week", type=int, metavar="N", help="week of files whose names tell none")
    parser.add_argument(
        "--kind",
        choices=("lecture", "lab", "exam", "admin", "other"),
        help="kind of files whose names tell none",
    )
    parser.add_argument(
        "--hidden", action="store_true", help="students do not see new files until you show them"
    )
    found, rest = parser.parse_known_args(list(argv))
    if found.week is not None and not 1 <= found.week <= 60:
        parser.error("--week must be a whole number from 1 to 60")
    return ImportOptions(**vars(found)), rest


def _load_tokenizer(config: ServerConfig, console: Console) -> Tokenizer | None:
    """None: sizes are estimated, as there is no model."""
    from server.model_source import resolve_model

    if config.scripted:
        return None
    resolved = resolve_model(config.model, config.models_dir, console.say, console.progress)
    console.close()
    return load_tokenizer(config.engine_config(resolved.path))


async def _import(
    options: ImportOptions, config: ServerConfig, console: Console, tokenizer: Tokenizer | None
) -> int:
    from server.app.folder_import import FolderImport, find_course
    from server.app.library_setup import make_course_folders, make_library
    from server.app.passages import estimate
    from server.store.courses import Courses
    from server.store.database import Database, sqlite_url
    from server.store.users import Users

    async def count_tokens(texts: Sequence[str]) -> list[int]:
        if tokenizer is None:
            return await asyncio.to_thread(estimate, texts)
        return await asyncio.to_thread(lambda: [len(tokenizer.encode(text)) for text in texts])

    async with AsyncExitStack() as stack:
        database = Database(config.database_url or sqlite_url(config.data_path / "lectern.db"))
        stack.push_async_callback(database.close)
        await database.open()
        courses = Courses(database)
        course = await find_course(
            courses,
            Users(database),
            options.course,
            create=options.create,
            teacher=options.teacher,
        )
        if isinstance(course, str):
            raise CourseOptionError(course)
        library = make_library(config, database, count_tokens)
        stack.push_async_callback(library.stop)
        folders = make_course_folders(
            library, database, count_tokens, max_bytes=config.max_material_bytes
        )
        importing = FolderImport(
            library,
            folders,
            console.say,
            week=options.week,
            kind=options.kind,
            is_hidden=options.hidden,
            max_bytes=config.max_material_bytes,
        )
        num_failed = await importing.run(course, options.folder)
    return EXIT_FAILURE if num_failed else EXIT_OK


def _refuse(message: object, code: int) -> int:
    sys.stderr.write(f"{message}\n")
    return code
