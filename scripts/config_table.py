"""Prints the README's configuration table, made from `ServerConfig`."""

from __future__ import annotations

from server.config import ServerConfig, option_name, variable_name


def config_table() -> str:
    """A Markdown table: option, variable, default, meaning."""
    rows = ["| option | variable | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in ServerConfig.model_fields.items():
        default = str(field.default).lower() if isinstance(field.default, bool) else field.default
        shown = "" if default is None else f"`{default}`"
        rows.append(
            f"| `{option_name(name)}` | `{variable_name(name)}` | {shown} | {field.description} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    print(config_table())
