"""The server with a model that thinks first and then has too much to say: of 60 tokens nothing is
left for the answer, and without a limit it fills the window. `python -m
tests.e2e.browser.thinking_server [options of the server]`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from engine.api import Engine, Script, create_scripted_engine
from server.__main__ import main
from server.config import ServerConfig
from server.console import Console

THOUGHT = "The passages say when. " * 20
SUMMARY = "They spoke of office hours."
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Names the marker of thinking, as templates of such models do."""


def answer(prompt: str) -> str:
    """An answer without end to a question, and a short one to a request for a summary."""
    asked = prompt.rpartition("<|im_start|>user\n")[2]
    if "Question: " not in asked:
        return SUMMARY
    if "short" in asked.rpartition("Question: ")[2]:
        return "Short."
    return f"<think>\n{THOUGHT}</think>\n\n" + " ".join(f"hour{n}" for n in range(2000))


def make_engine(config: ServerConfig, console: Console) -> Engine:
    console.say("Answers think first.")
    script = Script(answer=answer, token_s=config.scripted_token_s)
    engine: Any = create_scripted_engine(
        config.engine_config(Path("scripted"), served_name="scripted"), script
    )
    start = engine.start

    async def start_thinking() -> None:
        await start()
        engine.tokenizer.chat_template = TEMPLATE

    engine.start = start_thinking
    return engine  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main(make_engine=make_engine))
