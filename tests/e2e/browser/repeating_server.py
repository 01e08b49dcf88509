"""The server with a script of the page's tests: an answer repeats the question, and nothing of
the passages around it. `python -m tests.e2e.browser.repeating_server [options of the server]`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engine.api import Engine, Script, create_scripted_engine
from server.__main__ import main
from server.config import ServerConfig
from server.console import Console

TOKEN_CHARS = 3


def repeat_question(prompt: str) -> str:
    """The line of the last "Question:" of the prompt."""
    turn = prompt.rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]
    for mark in ("Question: ", "问题："):
        if mark in turn:
            return turn.rpartition(mark)[2].partition("\n")[0].strip()
    return turn


def make_engine(config: ServerConfig, console: Console) -> Engine:
    console.say("Answers repeat their question.")
    script = Script(
        answer=repeat_question, token_s=config.scripted_token_s, token_chars=TOKEN_CHARS
    )
    return create_scripted_engine(
        config.engine_config(Path("scripted"), served_name="scripted"), script
    )


if __name__ == "__main__":
    sys.exit(main(make_engine=make_engine))
