"""Reads `ServerConfig` from the command line and the environment, with sentences for people where
an option is wrong."""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, CliSettingsSource, SettingsConfigDict

from server.config import ENV_PREFIX, ServerConfig, option_name, variable_name


class ConfigError(Exception):
    """An option is wrong; the message is a sentence that names it and its range."""


class _CommandLine(ServerConfig, BaseSettings):
    """The same fields, read from the environment and the command line."""

    model_config = SettingsConfigDict(
        frozen=True,
        env_prefix=ENV_PREFIX,
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
    )


class _HelpFormatter(argparse.HelpFormatter):
    """Leaves `(default: None)` out: the text says what happens without the option."""

    def _expand_help(self, action: argparse.Action) -> str:
        return super()._expand_help(action).replace("(default: None)", "").rstrip()


def load_config(argv: Sequence[str]) -> ServerConfig:
    """The configuration from defaults, environment and `argv` (without the program's name).

    Raises ConfigError. `--help` and an unknown option leave through SystemExit (0 and 2),
    as argparse does."""
    _check_environment(os.environ)
    parser = argparse.ArgumentParser(
        prog="scripts/serve",
        usage="scripts/serve [options]   (--help lists them)",
        description="Answers questions about course materials, with a language model of its own.",
        epilog="Each option is also an environment variable: --max-num-seqs is "
        f"{variable_name('max_num_seqs')}. The command line wins.",
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
    )
    source: CliSettingsSource[argparse.ArgumentParser] = CliSettingsSource(
        _CommandLine,
        root_parser=parser,
        cli_parse_args=list(argv),
        formatter_class=_HelpFormatter,
    )
    try:
        return _CommandLine(_cli_settings_source=source)
    except ValidationError as error:
        raise ConfigError("\n".join(_sentences(error))) from error


def _check_environment(environ: Mapping[str, str]) -> None:
    """A mistyped LECTERN_ variable would otherwise be ignored in silence."""
    known = {variable_name(field) for field in ServerConfig.model_fields}
    for name in sorted(environ):
        if name.upper().startswith(ENV_PREFIX) and name.upper() not in known:
            near = difflib.get_close_matches(name.upper(), known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ConfigError(f"The environment variable {name} is not an option.{hint}")


def _sentences(error: ValidationError) -> list[str]:
    sentences = []
    for part in error.errors(include_url=False):
        if not part["loc"]:
            sentences.append(str(part["ctx"]["error"]) if "ctx" in part else part["msg"])
            continue
        field = str(part["loc"][0])
        is_shown = ServerConfig.model_fields[field].repr
        given = repr(part["input"]) if is_shown else "what was given"
        sentences.append(
            f"{option_name(field)} (or {variable_name(field)}) must be "
            f"{describe_range(field)}, not {given}."
        )
    return sentences


def describe_range(field: str) -> str:
    """What a field may hold, in words: `a whole number from 0 to 65535`."""
    schema: dict[str, Any] = ServerConfig.model_json_schema()["properties"][field]
    schema = next((s for s in schema.get("anyOf", []) if s.get("type") != "null"), schema)
    if "enum" in schema:
        return "one of " + ", ".join(schema["enum"])
    kind = {
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "string": "a path" if schema.get("format") == "path" else "a text",
    }[schema["type"]]
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{kind} from {low:g} to {high:g}" if high < 1e6 else f"{kind} from {low} to {high}"
    if low is not None:
        return f"{kind} of at least {low:g}"
    if "pattern" in schema:
        return f"{kind} like {ServerConfig.model_fields[field].default}"
    if "minLength" in schema:
        return f"{kind} of at least {schema['minLength']} characters"
    return kind
