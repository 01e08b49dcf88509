"""Options of an answer: those that its client names, those of before, and the defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from server.service.generation import GenerationOptions


@dataclass(frozen=True, slots=True)
class ChatDefaults:
    """Options of an answer that its client does not name. Courses want exact answers, so they
    are greedy; an answer made again would then be the same, so it is not."""

    max_tokens: int = 512
    temperature: float = 0.0
    regenerate_temperature: float = 0.7

    def fill(
        self, options: GenerationOptions, *, temperature: float | None = None
    ) -> GenerationOptions:
        """The options with defaults filled in. `temperature`: another default."""
        if temperature is None:
            temperature = self.temperature
        return msgspec.structs.replace(
            options,
            max_tokens=_or(options.max_tokens, self.max_tokens),
            temperature=_or(options.temperature, temperature),
        )


def continued(stored: dict[str, Any], options: GenerationOptions) -> GenerationOptions:
    """The options of before, with those that the client names now. How soon an answer was wanted
    was said of the part before only."""
    named = {
        name: value for name, value in msgspec.to_builtins(options).items() if value is not None
    }
    return msgspec.convert(
        {**stored, "timeout": None, "priority": None, **named}, GenerationOptions
    )


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value
