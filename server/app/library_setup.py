"""Builds a `Library`, and what imports folders into it, from the configuration."""

from __future__ import annotations

from pathlib import Path

from server.app.materials.course_folder import CourseFolders
from server.app.materials.document import ParseLimits
from server.app.materials.files import MaterialFiles
from server.app.materials.library import Library
from server.app.materials.parser_process import CountTokens, ParserProcess
from server.app.materials.plain_parser import PlainParser
from server.app.materials.uploads import UploadLimits
from server.config import ServerConfig
from server.store.courses import Courses
from server.store.database import Database

_UPLOADS = "uploads"
_MIN_CPU_S = 1
_CPU_SHARE = 0.5
"""Processor time that a file may take, as a share of its whole time: on a busy machine a reader
waits as long as it works."""


def make_library(config: ServerConfig, database: Database, count_tokens: CountTokens) -> Library:
    """The library over the configured folders, not started."""
    limits = parse_limits(config)
    parser = ParserProcess(
        limits, count_tokens, wall_s=config.material_time_s, max_workers=config.material_workers
    )
    files = MaterialFiles(config.materials_dir, config.data_path / _UPLOADS)
    return Library(database, files, parser, limits, num_workers=config.material_workers)


def make_course_folders(
    library: Library, database: Database, count_tokens: CountTokens, *, max_bytes: int
) -> CourseFolders:
    """What brings folders into the library."""
    plain = PlainParser(library.limits, count_tokens)
    return CourseFolders(library, Courses(database), plain, max_bytes=max_bytes)


def folder_importer(
    database: Database,
    count_tokens: CountTokens,
    data_dir: Path,
    limits: ParseLimits | None = None,
) -> CourseFolders:
    """The same without a server: for evaluations. Bytes are kept below `data_dir`."""
    limits = limits or ParseLimits()
    files = MaterialFiles(data_dir / "materials", data_dir / _UPLOADS)
    library = Library(database, files, ParserProcess(limits, count_tokens), limits)
    return make_course_folders(library, database, count_tokens, max_bytes=limits.max_file_bytes)


def parse_limits(config: ServerConfig) -> ParseLimits:
    """What one file may cost."""
    return ParseLimits(
        max_pages=config.max_material_pages,
        max_file_bytes=config.max_material_bytes,
        memory_mb=config.material_memory_mb,
        cpu_s=max(_MIN_CPU_S, round(_CPU_SHARE * config.material_time_s)),
        least_tokens=config.passage_tokens_least,
        most_tokens=config.passage_tokens_most,
    )


def upload_limits(config: ServerConfig) -> UploadLimits:
    """What one upload may hold."""
    return UploadLimits(
        max_bytes=config.max_upload_bytes,
        max_file_bytes=config.max_material_bytes,
        max_files=config.max_upload_files,
    )
